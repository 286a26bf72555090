"""Built-in evaluators, one per module, with config and registration."""
