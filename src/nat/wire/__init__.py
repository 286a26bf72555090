"""Records that cross a process border; pydantic only, imported by the harness and by the backend alike."""
