"""The HTTP server of the backend: routes and their bodies; models are reached through the sampling engine."""
