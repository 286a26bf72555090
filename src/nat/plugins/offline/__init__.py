"""Training data from files: demonstrations and preferences."""
