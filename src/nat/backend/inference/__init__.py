"""Continuous batching: sequences, their scheduler, the key/value cache, the sampler, the engine and its thread."""
