"""Built-in evaluators; each module is one, with its config and its registration."""
