"""The base of evaluators, and the records that they exchange."""
