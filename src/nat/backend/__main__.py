"""`python -m nat.backend`: check the options, then start the server.

The options are checked before torch is imported, so that a mistake is reported at once.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic import ValidationError

from nat.backend.cores import share_cores
from nat.errors import NatError, findings_of
from nat.heap import keep_free_pages
from nat.secrets import keep_files_private, keep_memory_private, known_secrets, redact_output
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import (
    FAILED,
    KEY_FD,
    KEY_VARIABLES,
    LOCAL_PACKAGES,
    Handover,
    ServeOptions,
    command_line_options,
    environment_keys,
    options_class,
)


def main() -> int:
    """Run the backend until it is stopped; return the exit code."""
    keep_files_private()
    redact_output()
    options = parse(sys.argv[1:], os.environ)
    for variable in KEY_VARIABLES.values():
        os.environ.pop(variable, None)
    keep_memory_private()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if missing := missing_packages(LOCAL_PACKAGES):
        return _failed(options, f"{', '.join(missing)}: not installed", install_hint("local"))
    share_cores(os.environ)
    if options.output_dir is not None:  # updates gain by it; a backend that only samples returns what a peak has taken
        keep_free_pages()
    from nat.backend.failures import explained  # noqa: PLC0415 - imports torch
    from nat.backend.serve import serve  # noqa: PLC0415 - likewise

    try:
        serve(options)
    except NatError as error:
        return _failed(options, error.message, error.hint)
    except Exception as error:
        logging.getLogger(__name__).exception("the backend failed")
        return _failed(options, *explained(error))
    return 0


def _failed(options: ServeOptions, message: str, hint: str | None) -> int:
    """Print the error for people, and as an event for the parent."""
    print(f"Error: {NatError(message, hint=hint)}", file=sys.stderr)  # noqa: T201 - the last word of a command line
    if options.exit_with_parent:
        print(json.dumps({"event": FAILED, "message": message, "hint": hint}), flush=True)  # noqa: T201 - for the parent
    return 1


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> ServeOptions:
    """Read the command line; ends the process with code 2 and every finding if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m nat.backend", description="Serve and train a model.")
    for name, field in command_line_options().items():
        if field.annotation is bool:
            parser.add_argument(f"--{name}", action="store_true", default=None, help=field.description)
        else:
            choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)] or None
            required = name in ServeOptions.model_fields and field.is_required()
            parser.add_argument(f"--{name}", required=required, choices=choices, help=field.description)
    parser.add_argument(KEY_FD, type=int, help=argparse.SUPPRESS)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    handover = _handover(given.pop("key_fd", None))
    handed = handover.model_dump(include=set(KEY_VARIABLES), exclude_none=True)
    given = environment_keys(given, environment) | handed | given
    known_secrets.remember([*(given.get(name, "") for name in KEY_VARIABLES), *handover.secrets])
    try:
        return options_class(given).model_validate(given)
    except ValidationError as error:
        parser.error("; ".join(map(str, findings_of(error))))
    except ValueError as error:
        parser.error(str(error))


def _handover(descriptor: int | None) -> Handover:
    """Read only the first line of a pipe, because the end of stdin means that the parent has ended."""
    if descriptor is None:
        return Handover()
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return Handover.model_validate_json(line) if line else Handover()


if __name__ == "__main__":
    sys.exit(main())
