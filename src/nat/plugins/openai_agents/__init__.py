"""The OpenAI Agents SDK on recorded clients."""
