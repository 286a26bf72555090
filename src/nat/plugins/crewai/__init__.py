"""CrewAI: its OpenAI LLM on recorded clients, and functions as its tools."""
