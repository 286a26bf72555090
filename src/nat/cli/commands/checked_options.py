"""Options of a command that a pydantic model checks."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nat.config.secrets import secrets_in
from nat.errors import ConfigError, findings_of
from nat.secrets import known_secrets

Options = TypeVar("Options", bound=BaseModel)


def checked_options(model: type[Options], given: Mapping[str, object], *, command: str) -> Options:
    """The options as the model has them, their secrets known from now on; ConfigError with all findings."""
    try:
        options = model.model_validate(given)
    except ValidationError as error:
        raise ConfigError(list(map(str, findings_of(error))), source=f"the options of `{command}`") from error
    known_secrets.remember(secrets_in(options.model_dump()))
    return options
