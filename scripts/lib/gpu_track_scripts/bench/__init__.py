"""scripts/bench: measures what tracking costs."""
