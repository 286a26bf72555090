"""What YAML can say, and the records that flow between stages; pydantic only."""
