"""The models of the YAML, and the records that stages exchange; pydantic only."""
