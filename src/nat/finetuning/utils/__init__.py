"""The import path of plug-ins for the parser."""
