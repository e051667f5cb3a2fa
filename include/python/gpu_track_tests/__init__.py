"""Tests of the module gpu_track. Those of the installed programs need GPU_TRACK_RUN, the path of a gpu-track-run."""
