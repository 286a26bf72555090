"""Another import path of the evaluators' records."""
