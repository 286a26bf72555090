"""How much memory training takes, computed from a model's shape; no torch, so that plans and pages use it too."""
