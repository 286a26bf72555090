"""`nat replay`: train a recorded update again, and name the first number that differs; or play a rollout again."""

from collections.abc import Sequence
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.finetune import as_begun
from nat.cli.commands.options import json_option, override_option, runs_root_option, trust_option
from nat.cli.steps import shown_steps
from nat.errors import JournalError, did_you_mean
from nat.plugins.local.replay import replay_update
from nat.plugins.local.replayed_rollout import replay_rollout
from nat.reports.replay_page import replay_page
from nat.runs.find import find_run
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase
from nat.runs.replayed import ReplayedRollout, ReplayReport
from nat.runs.rollouts import RolloutRecord

_PREFIX = "training."
_FORM = "name it as EXAMPLE/GENERATION, as `nat runs show RUN --epoch N` lists them"


@click.command("replay")
@click.argument("run")
@click.option("--epoch", type=click.IntRange(min=1), required=True, help="The epoch to replay, counted from 1.")
@click.option("--rollout", metavar="EXAMPLE/GENERATION", help="Play this rollout of the epoch again, instead.")
@click.option("--role", help="The role whose update it is, of a run that trains several models.")
@click.option("--algorithm", help="Train the same batch with this algorithm, too, and compare the tokens' gradients.")
@click.option("--seed", type=int, help="Train the same batch with another order of the groups, too: training.seed.")
@override_option
@trust_option
@runs_root_option
@json_option
def replay_command(
    run: str,
    *,
    epoch: int,
    rollout: str | None,
    role: str | None,
    algorithm: str | None,
    seed: int | None,
    override: Sequence[tuple[str, str]],
    trust: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Train a recorded update again from its checkpoint and the journal, and name what differs first.

    RUN is a run's folder, its id, the beginning of an id that no other run has, or `latest`. With --algorithm, --seed
    or `-o training.KEY VALUE`, the report shows which tokens' gradient the change moves, and how far. The exit code
    is 1 if more differs than rounding explains.
    """
    if wrong := [key for key, _ in override if not key.startswith(_PREFIX)]:
        raise click.UsageError(f"-o {wrong[0]}: a replay changes the update alone: `-o {_PREFIX}KEY VALUE`.")
    changes = {"algorithm": algorithm, "seed": None if seed is None else str(seed)}
    given = {key: value for key, value in changes.items() if value is not None}
    given |= {key.removeprefix(_PREFIX): value for key, value in override}
    with reading(find_run(run, output_dir)) as journal, shown_steps() as steps:
        report: ReplayReport | ReplayedRollout
        if rollout is not None:
            if given:
                raise click.UsageError("--rollout plays with the recorded settings; leave out what changes the update.")
            steps.begin("playing the rollout again")
            begun, record = as_begun(journal.run_dir, {}, trust=trust, instead=""), _record(journal, epoch - 1, rollout)
            report = event_loop.run(replay_rollout(journal, record, begun), keep_stdout=as_json)
        else:
            steps.begin("training the update again")
            report = event_loop.run(replay_update(journal, epoch - 1, given, role), keep_stdout=as_json)
    click.echo(report.model_dump_json() if as_json else replay_page(report))
    if not report.agrees:
        raise click.exceptions.Exit(1)


def _record(journal: Journal, epoch: int, name: str) -> RolloutRecord:
    example, _, generation = name.rpartition("/")
    number = int(generation) if generation.isdecimal() else -1
    found = next(journal.rollouts(Phase.TRAIN, epoch, example, number), None)
    if found is None:
        known = [f"{each.example_id}/{each.generation}" for each in journal.outcomes(Phase.TRAIN, epoch)]
        raise JournalError(f"epoch {epoch + 1} has no rollout {name!r}.{did_you_mean(name, known)}", hint=_FORM)
    return found
