"""Importing this module registers the example's components; the entry point in pyproject.toml names it."""

from librarian import catalogue, desk

__all__ = ["catalogue", "desk"]
