"""`nat runs send`: give trackers what they do not have of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from nat.cli.commands.options import dotted_key, import_option, runs_root_option
from nat.config.sources import parse_yaml
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.tracker import TrackerConfig, TrackerName
from nat.errors import ANY_FAILURE, ConfigError, JournalError, TrackerFailed, describe_error, findings_of
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.runs.liveness import is_alive
from nat.runs.recorded_config import config_of, value_at
from nat.runs.tracker import Sending, tracker_findings
from nat.secrets import REDACTED


@click.command("send")
@click.argument("run")
@click.option(
    "--to",
    "names",
    multiple=True,
    required=True,
    metavar="TRACKER",
    help="A tracker of the run's configuration, or a type such as wandb; may be repeated.",
)
@click.option(
    "-o",
    "--override",
    "settings",
    type=(dotted_key, str),
    multiple=True,
    metavar="KEY VALUE",
    help="Set a key of the tracker, for example `-o project mine`; may be repeated.",
)
@import_option
@runs_root_option
def send_command(
    run: str,
    names: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    imports: tuple[str, ...],
    output_dir: Path | None,
) -> None:
    """Give trackers all of a run. What they have of it under its id is replaced."""
    run_dir = find_run(run, output_dir)
    if is_alive(run_dir):
        raise JournalError(f"the run {run_dir.name} is going on, and sends itself", hint="send it when it has ended")
    discover_components()
    for each in imports:
        import_components(each)
    with reading(run_dir) as journal:
        recorded = config_of(journal.info().config_text)
    given = {key: parse_yaml(text) for key, text in settings}
    configs = {name: tracker_config(recorded, name, given) for name in names}
    if findings := tracker_findings(configs):
        raise ConfigError(findings, source="the environment")
    for name, config in configs.items():
        _send(name, config, run_dir)


def tracker_config(recorded: Mapping[str, Any], name: str, settings: Mapping[str, Any]) -> TrackerConfig:
    """The tracker of this name in the recorded configuration; without one, the type of this name.

    Raises:
        ConfigError: its settings are wrong, or were left out of the journal as secrets.

    """
    known = value_at(recorded, "finetuning", "trackers", name)
    raw = {"_type": name, **(known if isinstance(known, dict) else {}), **settings}
    if hidden := [key for key, value in raw.items() if REDACTED in str(value)]:
        raise ConfigError([f"{hidden[0]}: the journal has no secrets"], source=name, hint=f"give it: -o {hidden[0]} …")
    known = current_catalog().components[ComponentGroup.TRACKERS]
    kind = known.get(TypedBaseModel.discriminator(raw) or name).config_type
    try:
        TypeAdapter(TrackerName).validate_python(name)
        config = kind.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(list(map(str, findings_of(error))), source=f"the tracker '{name}'") from error
    assert isinstance(config, TrackerConfig), "the group's base class, checked when it was registered"
    return config


def _send(name: str, config: TrackerConfig, run_dir: Path) -> None:
    sending = Sending(name, config, run_dir)
    try:
        sending.send(last=True)
    except ANY_FAILURE as error:
        raise TrackerFailed(
            f"the tracker '{name}' failed: {describe_error(error)}", hint="the same command tries it again"
        ) from error
    click.echo(f"{name} has {sending.epochs} epochs of {run_dir.name}.")
