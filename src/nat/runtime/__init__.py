"""Import paths of plug-ins for loading configurations and workflows."""
