"""scripts/time-spent: compares where the time went, by gpu-track-run, with what the programs themselves measured."""
