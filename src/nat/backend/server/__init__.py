"""The HTTP face of the backend: routes, authentication, limits; everything else lives behind the worker."""
