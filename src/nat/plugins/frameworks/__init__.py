"""Agent frameworks: one module each, imported when a workflow first requests one of the framework's objects."""
