"""LLM providers and the clients that frameworks get for them."""
