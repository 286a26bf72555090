"""A model server for agents in other processes: they get a base URL and a key, and every call is recorded.

`access` holds the keys of open rollouts, `upstream` forwards each LLM's calls, `dialects` are the APIs that agents
speak, `app` has the routes.
"""

WRAPPER_TYPE = "gateway"
"""Wrapper type with which `get_llm` gives the LLM's `Upstream`."""
