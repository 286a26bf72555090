"""AutoGen on recorded clients."""
