"""Models that a server of the Tinker protocol samples and trains."""
