"""The options of `nat runs export RUN --trajectories FILE`, and which of them go together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from nat.cli.commands.options import Amount
from nat.preferences.pairs import Pairing, PairRule
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.trajectory_files.export import ExportedTrajectories, export_trajectories
from nat.trajectory_files.formats import Form, RowOptions

_OF_A_MODEL = ("checkpoint", "form", "output")
_OF_A_FORM: Mapping[str, tuple[Form, ...]] = {
    "margin": ("preference",),
    "pairs": ("preference",),
    "max_pairs": ("preference",),
    "min_reward": ("kto", "messages"),
}
"""Options that only some formats have."""

_OPTIONS = (
    click.option(
        "--trajectories",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write rollouts instead of a model, into a .jsonl or .parquet file.",
    ),
    click.option(
        "--as",
        "rows",
        type=click.Choice(get_args(Form)),
        default="grpo",
        show_default=True,
        help="grpo: prompt, completion and reward; preference: prompt, chosen, rejected; kto: prompt, completion, "
        "label; messages: whole conversations of the best rollout of each group, or of those of --min_reward.",
    ),
    click.option(
        "--epoch",
        "epochs",
        type=click.IntRange(min=1),
        multiple=True,
        help="Training rollouts of this epoch, counted from 1; may be repeated.  [default: all epochs]",
    ),
    click.option(
        "--validation",
        "validations",
        type=click.IntRange(min=0),
        multiple=True,
        help="Held-out rollouts after this epoch; 0: before training; may be repeated.  [default: none]",
    ),
    click.option(
        "--margin",
        type=Amount(),
        default=0.0,
        show_default=True,
        help="preference: the least difference in reward of a pair.",
    ),
    click.option(
        "--pairs",
        type=click.Choice(get_args(Pairing)),
        default="all",
        show_default=True,
        help="preference: all pairs of a group, or the best rollout against the worst.",
    ),
    click.option(
        "--max_pairs", type=click.IntRange(min=1), help="preference: the most pairs of a group.  [default: no limit]"
    ),
    click.option(
        "--min_reward",
        type=float,
        help="kto: label answers as good from this reward on, instead of above the mean of their group; "
        "messages: write all rollouts from this reward on.",
    ),
    click.option("--tokens", is_flag=True, help="Also write token ids and the sampler's log probabilities."),
    click.option("--force", is_flag=True, help="Replace an existing file."),
)


def trajectory_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `--trajectories`, which the command passes on to `export_rollouts`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given(names: Mapping[str, Any]) -> list[str]:
    """The options that the user set, as written on the command line."""
    context = click.get_current_context()
    set_ones = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    return [parameter.opts[0] for parameter in context.command.params if parameter.name in set_ones]


def check_options_of_a_model(options: Mapping[str, Any]) -> None:
    """Raise if options of `--trajectories` are set without it."""
    if wrong := given(options):
        raise click.UsageError(f"{', '.join(wrong)}: only for rollouts; add --trajectories FILE to write them.")


def export_rollouts(
    run_dir: Path,
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
) -> ExportedTrajectories:
    """Write the file that the options describe."""
    if wrong := given(dict.fromkeys(_OF_A_MODEL)):
        raise click.UsageError(f"{', '.join(wrong)}: only for models; leave it out, or leave out --trajectories.")
    for name, forms in _OF_A_FORM.items():
        if rows not in forms and (wrong := given({name: None})):
            raise click.UsageError(f"{wrong[0]} has no effect on --as {rows}; it is for --as {' and '.join(forms)}.")
    if validations and tokens:
        raise click.UsageError("--tokens: held-out rollouts are recorded without tokens; leave out one of the options.")
    options = RowOptions(rows, tokens=tokens, pairs=PairRule(margin, pairs, max_pairs), min_reward=min_reward)
    chosen = [(Phase.TRAIN, epoch - 1) for epoch in sorted(set(epochs))]
    chosen += [(Phase.VALIDATION, epoch) for epoch in sorted(set(validations))]
    with reading(run_dir) as journal:
        return export_trajectories(journal, chosen, file, options, force=force)
