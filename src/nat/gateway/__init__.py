"""A model server for agents in other processes: they get a base URL and a key, and every call is recorded.

`access` holds the keys of open rollouts, `upstream` sends each LLM's calls on, `dialects` are the APIs that agents
speak, `app` has the routes.
"""

WRAPPER_TYPE = "gateway"
"""`get_llm` with this gives the LLM's `Upstream`."""
