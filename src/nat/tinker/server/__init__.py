"""Serve Tinker's clients in the backend's process: their models, their futures, and the routes that they call."""
