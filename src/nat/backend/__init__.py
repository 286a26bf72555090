"""The embedded backend: one process that samples from a Hugging Face model and trains the same tensors."""
