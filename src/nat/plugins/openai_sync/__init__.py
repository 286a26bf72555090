"""The OpenAI SDK for agents that block."""
