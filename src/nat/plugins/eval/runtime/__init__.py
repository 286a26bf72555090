"""Another import path of the evaluation run."""
