"""From a YAML file, overrides and the environment to a `Config`, with every error at once."""

from nat.config.load import load_config, parse_config
from nat.config.redaction import dump_resolved

__all__ = ["dump_resolved", "load_config", "parse_config"]
