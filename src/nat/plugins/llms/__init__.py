"""The `openai` LLM provider, and its clients."""
