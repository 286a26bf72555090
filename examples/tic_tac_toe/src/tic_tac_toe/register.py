"""Importing this module registers the example's components; the entry point in pyproject.toml names it."""

from tic_tac_toe import reward, workflow

__all__ = ["reward", "workflow"]
