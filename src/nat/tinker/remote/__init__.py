"""Training and sampling on a server of the Tinker protocol; all else of a backend runs in this process."""
