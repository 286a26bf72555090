"""Load a YAML file, overrides and the environment into a `Config`; all errors are raised at once."""

from nat.config.load import dump_resolved, load_config, parse_config

__all__ = ["dump_resolved", "load_config", "parse_config"]
