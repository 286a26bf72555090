"""`nat diagnose`: why the reward of a run is flat, from its records alone."""

import json
from pathlib import Path
from typing import Any

import click

from nat.cli.commands.options import json_option, runs_root_option
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.finetuning.diagnosis.catalogue import Diagnosis
from nat.finetuning.diagnosis.gather import diagnose_phases, diagnose_run, diagnosis_text
from nat.reports.text import printable
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.runs.liveness import is_alive
from nat.runs.records import RunState


@click.command("diagnose")
@click.argument("run")
@runs_root_option
@json_option
def diagnose_command(run: str, output_dir: Path | None, *, as_json: bool) -> None:
    """Say why a reward is flat: the causes in the order of likelihood, their numbers, and what to change.

    RUN is a run's folder, its id, the beginning of an id that no other run has, or `latest`.
    """
    with reading(find_run(run, output_dir)) as journal, shown_steps() as steps:
        steps.begin("reading the rollouts of the run", after=SLOW_SECONDS)
        info = journal.info()
        ended = info.state is not RunState.RUNNING or not is_alive(journal.run_dir)
        phases = diagnose_phases(journal, ended=ended)
        diagnosis = diagnose_run(journal, ended=ended) if not phases else None
    if diagnosis is not None:
        text, record = diagnosis_text(diagnosis), _record(diagnosis)
    else:
        text = "\n\n".join(f"{phase}\n\n{diagnosis_text(own)}" for phase, own in phases)
        record = {"phases": [{"phase": phase.name, **_record(own)} for phase, own in phases]}
    click.echo(json.dumps({"run_id": info.run_id, **record}) if as_json else printable(f"run {info.run_id}\n\n{text}"))


def _record(diagnosis: Diagnosis) -> dict[str, Any]:
    causes = [finding.model_dump(mode="json") for finding in diagnosis.findings]
    return {"healthy": diagnosis.healthy, "learned": diagnosis.window.learned, "causes": causes}
