"""Training algorithms, and the registry that finds those of plug-ins."""
