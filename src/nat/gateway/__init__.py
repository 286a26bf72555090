"""A model server for agents in other processes: they get a base URL and a key, and every call is recorded.

`access` holds the keys of open rollouts, `upstream` forwards each LLM's calls, `dialects` are the APIs that agents
speak, `app` has the routes.
"""

from nat.errors import ConfigError
from nat.wire.extras import install_hint, missing_packages

WRAPPER_TYPE = "gateway"
"""Wrapper type with which `get_llm` gives the LLM's `Upstream`."""
KEY_FIELD = "nat_rollout_key"
"""The field of a request to a service that is always up, with the key for the calls that it causes."""


def check_installed(workflow: str) -> None:
    """Raise ConfigError unless the packages are installed with which a workflow of this type serves its gateway."""
    if missing := missing_packages(("uvicorn",)):
        raise ConfigError(
            [f"workflow: `_type: {workflow}` needs packages that are not installed: {', '.join(missing)}"],
            source="the installation",
            hint=install_hint("serve"),
        )
