"""Training algorithms, one file each, and the registry that finds those of plug-ins."""
