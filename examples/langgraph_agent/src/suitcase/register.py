"""Importing this module registers the example's components; the entry point in pyproject.toml names it."""

from suitcase import forecast, packer, plans

__all__ = ["forecast", "packer", "plans"]
