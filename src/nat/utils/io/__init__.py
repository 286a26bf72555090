"""Import paths of plug-ins for reading YAML."""
