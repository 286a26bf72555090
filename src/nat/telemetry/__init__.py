"""What a rollout recorded, as attributes of spans: their names, and the texts that they have."""
