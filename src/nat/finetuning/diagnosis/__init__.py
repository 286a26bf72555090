"""Why is the reward flat? The records of a run → evidence → the likely causes, each with its numbers and a remedy."""
