"""Stands for gpu_tracker below `python -m gpu_track.drop_in`: importing it gives `gpu_track`."""

from gpu_track import drop_in

drop_in.install()
