"""The `nat` command, and the import path of plug-ins for the decorators."""
