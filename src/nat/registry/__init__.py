"""The registered components: a generic registry, the `register_*` decorators, entry-point discovery."""
