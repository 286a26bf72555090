"""The import paths under which users know the LLM configs; they live in `nat.plugins.llms`."""
