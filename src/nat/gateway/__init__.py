"""A model server for agents in other processes: they know a base URL and a key, and every call is recorded.

`keys` knows the open rollouts, `upstream` the one place that each LLM's calls go to, `dialects` the APIs that agents
speak, `app` the routes.
"""

WRAPPER_TYPE = "gateway"
"""`get_llm` with this gives the LLM's `Upstream`."""
