"""The base class of evaluators, and the alias of their records."""
