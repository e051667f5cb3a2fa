"""The table in docs/GUIDE.md of what differs from gpu_tracker under its name."""
