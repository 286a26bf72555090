"""Serve ART's clients in the backend's process: their models, their batches, and the routes that they call."""
