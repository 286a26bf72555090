"""`nat runs rollouts`: write a run's rollouts as a file for other trainers.

It works for runs that are still running, failed or were killed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click
from click.core import ParameterSource

from nat.cli.commands.options import UserPathOption, json_option, runs_root_option
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.preferences.pairs import Pairing, PairRule
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.trajectory_files.export import export_trajectories
from nat.trajectory_files.formats import Form, RowOptions

_OF_A_FORM: Mapping[str, tuple[Form, ...]] = {
    "margin": ("preference",),
    "pairs": ("preference",),
    "max_pairs": ("preference",),
    "min_reward": ("kto", "messages"),
}
"""Options that only some formats have."""


@click.command("rollouts")
@click.argument("run")
@click.argument("file", type=UserPathOption(path_type=Path))
@click.option(
    "--as",
    "rows",
    type=click.Choice(get_args(Form)),
    default="grpo",
    show_default=True,
    help="grpo: prompt, completion and reward; preference: prompt, chosen, rejected; kto: prompt, completion, "
    "label; messages: whole conversations of the best rollout of each group, or of those of --min_reward.",
)
@click.option(
    "--epoch",
    "epochs",
    type=click.IntRange(min=1),
    multiple=True,
    help="Training rollouts of this epoch, counted from 1; may be repeated.  [default: all epochs]",
)
@click.option(
    "--validation",
    "validations",
    type=click.IntRange(min=0),
    multiple=True,
    help="Held-out rollouts after this epoch; 0: before training; may be repeated.  [default: none]",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="preference: the least difference in reward of a pair.",
)
@click.option(
    "--pairs",
    type=click.Choice(get_args(Pairing)),
    default="all",
    show_default=True,
    help="preference: all pairs of a group, or the best rollout against the worst.",
)
@click.option(
    "--max_pairs", type=click.IntRange(min=1), help="preference: the most pairs of a group.  [default: no limit]"
)
@click.option(
    "--min_reward",
    type=float,
    help="kto: label answers as good from this reward on, instead of above the mean of their group; "
    "messages: write all rollouts from this reward on.",
)
@click.option("--tokens", is_flag=True, help="Also write token ids and the sampler's log probabilities.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@runs_root_option
@json_option
def rollouts_command(
    run: str,
    file: Path,
    *,
    rows: Form,
    epochs: tuple[int, ...],
    validations: tuple[int, ...],
    margin: float,
    pairs: Pairing,
    max_pairs: int | None,
    min_reward: float | None,
    tokens: bool,
    force: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Write the rollouts of RUN into FILE, JSON lines that other trainers read.

    RUN is a run's id or the beginning of one, `latest`, or a run's folder.
    """
    context = click.get_current_context()
    for name, forms in _OF_A_FORM.items():
        if rows not in forms and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} has no effect on --as {rows}; it is for --as {' and '.join(forms)}.")
    if validations and tokens:
        raise click.UsageError("--tokens: held-out rollouts are recorded without tokens; leave out one of the options.")
    options = RowOptions(rows, tokens=tokens, pairs=PairRule(margin, pairs, max_pairs), min_reward=min_reward)
    chosen = [(Phase.TRAIN, epoch - 1) for epoch in sorted(set(epochs))]
    chosen += [(Phase.VALIDATION, epoch) for epoch in sorted(set(validations))]
    with shown_steps() as steps:
        steps.begin("writing the rollouts", after=SLOW_SECONDS)
        with reading(find_run(run, output_dir)) as journal:
            exported, run_id = export_trajectories(journal, chosen, file, options, force=force), journal.info().run_id
    click.echo(exported.model_dump_json() if as_json else f"run {run_id}: {exported}")
