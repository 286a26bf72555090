"""Which components exist: one generic registry, the `register_*` decorators, entry-point discovery."""
