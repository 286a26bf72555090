"""Importing this module registers the example's components; the entry point in pyproject.toml names it."""

from shopkeeper import counter, prices

__all__ = ["counter", "prices"]
