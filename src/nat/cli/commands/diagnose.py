"""`nat diagnose`: why the reward of a run is flat, from its records alone."""

import json
from pathlib import Path
from typing import Any

import click

from nat.cli.commands.options import json_option, runs_root_option
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.finetuning.diagnosis.catalogue import Diagnosis
from nat.finetuning.diagnosis.gather import diagnoses, has_ended
from nat.reports.text import printable
from nat.runs.find import find_run
from nat.runs.journal import reading


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
        run_id, phases = journal.info().run_id, {phase.name: phase for phase in journal.phases()}
        found = diagnoses(journal, ended=has_ended(journal))
    parts = [f"run {run_id}"]
    for name, diagnosis in found.items():
        parts += [str(phases[name]), str(diagnosis)] if name else [str(diagnosis)]
    records = [({"phase": name} if name else {}) | _record(diagnosis) for name, diagnosis in found.items()]
    record = {"phases": records} if phases else records[0]
    click.echo(json.dumps({"run_id": run_id, **record}) if as_json else printable("\n\n".join(parts)))


def _record(diagnosis: Diagnosis) -> dict[str, Any]:
    causes = [finding.model_dump(mode="json") for finding in diagnosis.findings]
    return {"healthy": diagnosis.healthy, "learned": diagnosis.window.learned, "causes": causes}
