"""Another import path of the base evaluator."""
