"""Pydantic AI on recorded clients."""
