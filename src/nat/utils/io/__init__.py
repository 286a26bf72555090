"""Reading and writing YAML, for plug-ins."""
