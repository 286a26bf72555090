"""Trackers, one file each. Their packages are optional, and imported when a run begins."""
