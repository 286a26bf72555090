"""Aliases for plug-ins."""
