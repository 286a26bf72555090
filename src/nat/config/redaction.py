"""A configuration as text that may be saved and shown: no secrets in it."""

from contextlib import suppress
from typing import Any

import yaml

from nat.config.overrides import Override
from nat.config.secrets import redacted, secrets_in
from nat.config.yaml_text import format_yaml, parse_yaml
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig
from nat.secrets import REDACTED, known_secrets


def dump_resolved(config: Config) -> str:
    """The whole configuration with its defaults as YAML; secrets are replaced by stars, here and from now on."""
    known_secrets.remember(secrets_in(config.model_dump(by_alias=True)))
    shown = config
    given = config.finetuning.run_configuration
    if given is not None:
        given = given.model_copy(update={"override": tuple(map(_redacted_override, given.override))})
        finetuning = config.finetuning.model_copy(update={"run_configuration": given})
        shown = config.model_copy(update={"finetuning": finetuning})
    without = {"workflow"} if isinstance(config.workflow, EmptyFunctionConfig) else None
    tree = redacted(shown.model_dump(mode="json", by_alias=True, exclude=without, fallback=str))
    return format_yaml(known_secrets.redact_tree(tree))


def _redacted_override(override: Override) -> Override:
    """Stars in place of a value that is or holds a secret."""
    key, text = override
    value: Any = text
    with suppress(yaml.YAMLError):
        value = parse_yaml(text)
    for part in reversed(key.split(".")):
        value = {part: value}
    return (key, text if redacted(value) == value else REDACTED)
