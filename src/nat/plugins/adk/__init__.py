"""Google ADK: its LiteLlm on a recorded client, and functions as its tools."""
