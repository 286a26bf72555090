"""Agent frameworks: one module each, imported when a workflow first asks for one of the framework's objects."""
