"""The embedded backend as components: the `local` LLM, and the builder, adapter and trainer that train it."""
