"""A configuration as text that may be saved and shown: no secrets in it."""

import re
from typing import Any

from nat.config.secrets import REDACTED, is_secret_key
from nat.config.yaml_text import format_yaml
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig

_URL_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def dump_resolved(config: Config) -> str:
    """The whole configuration with its defaults as YAML; secrets are replaced by stars."""
    without = {"workflow"} if isinstance(config.workflow, EmptyFunctionConfig) else None
    return format_yaml(redacted(config.model_dump(mode="json", by_alias=True, exclude=without, fallback=str)))


def redacted(value: Any, *, secret: bool = False) -> Any:
    """The tree without texts under secret-sounding keys and without user names in URLs."""
    if isinstance(value, dict):
        return {k: redacted(v, secret=secret or is_secret_key(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item, secret=secret) for item in value]
    if not isinstance(value, str) or not value:
        return value
    return REDACTED if secret else _URL_USER.sub(REDACTED, value)
