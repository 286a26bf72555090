"""Semantic Kernel on recorded clients."""
