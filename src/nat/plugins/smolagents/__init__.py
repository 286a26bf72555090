"""smolagents: its OpenAI model on a recorded client, and functions as its tools."""
