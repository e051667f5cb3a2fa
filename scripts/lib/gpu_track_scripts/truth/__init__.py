"""scripts/truth: compares gpu-track-run's figures with the kernel's own."""
