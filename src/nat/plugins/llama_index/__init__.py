"""LlamaIndex: its LLM on recorded clients, and functions as its tools."""
