"""An LLM as the upstream of the gateway, for agents that run in a process of their own."""
