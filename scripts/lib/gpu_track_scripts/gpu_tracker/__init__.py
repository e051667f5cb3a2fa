"""The table in docs/GPU_TRACKER.md of what differs from gpu_tracker under its name."""
