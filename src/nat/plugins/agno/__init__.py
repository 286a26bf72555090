"""Agno on recorded clients."""
