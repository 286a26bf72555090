"""Write the generated pages of `docs/reference/`: configuration, cli, python, metrics, algorithms, causes and others.

Run it with `make docs`. A test compares the committed pages with what this script makes, so a field or an option
that changes without its page fails the build. Attribute docstrings describe the fields, `help` describes the options;
this script holds only the text around them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path

import click
from configuration_pages import configuration_pages
from epoch_metrics import EPOCH
from families_page import families_page
from python_page import python_page
from records_page import records_page
from reference_tables import cell, table
from update_metrics import OF_COMPLETIONS, OF_SERVER, OF_TEACHER, UPDATE

from nat.backend.algorithms.registry import BUILT_IN, FACTORS, find_algorithm, resolve
from nat.cli.main import cli
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.conditions import CONDITIONS, Condition
from nat.registry.description import fields_of
from nat.wire.training import TrainingConfig

REFERENCE = Path(__file__).parent / "reference"

CLI_HEAD = """\
# Command line reference

`make docs` generates this page from the code; `nat COMMAND --help` prints the same.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an error, which stderr shows as `Error: …`, with a remedy after `→` |
| 2 | a mistake in the command line |
| 75 | SIGTERM interrupted `nat finetune`, and `--resume` goes on with the run |
| 130 | interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP) |

Results go to stdout; warnings and errors go to stderr. With `--json` a command prints one JSON object per result.

A command that takes over two seconds says on stderr (`nat finetune` on stdout) what it does, how far it is and how long
it takes: a live view on a terminal, else a line for each step and at least every 30 seconds.
"""

METRICS_HEAD = """\
# Metrics

`make docs` generates this page from the code. Each epoch has these metrics under `metrics` in
[`training_metrics.jsonl`](run_folder.md#training_metricsjsonl) and in the journal. A metric that a server
does not report is absent. An adapter of your own may report any number under any name; the harness adds the prefix
`train/` unless the name has one of the prefixes below.
"""
METRICS_OF_COMPLETIONS = """\
Algorithms that compare whole answers (`dpo`, `kto`) have these, too. An update reports no metric of a kind of answers
that it did not have.
"""
METRICS_OF_TEACHER = """\
`distill` has these, too; the trainer adapter counts the requests.
"""
METRICS_OF_SERVER = """\
Updates on a [Tinker server](../scale/tinker.md) have these, too.
"""
METRICS_UPDATE = """\
## train/, from the embedded backend

The backend reports these metrics for an update. "Tokens" are sampled tokens that carry loss. "Tokens of all passes"
counts a token once for each pass (`num_iterations`), with its value in that pass. An update that trained no group
reports only the counts, `policy_step`, `seconds` and `tokens_per_second`.

An OpenPipe ART server's own metrics appear under `train/`, each as the mean of the gradient steps.
`train/trained_groups` and `train/trained_tokens` are then its `data/step_num_groups_trainable` and
`data/step_trainer_tokens`, and 0 without a gradient step.
"""

ALGORITHMS_HEAD = """\
# Algorithms

This page is generated from the code by `make docs`.

[`training.algorithm`](configuration/training.md) of a trainer adapter names one of these algorithms, or one from a
plug-in ([a loss of your own](../extend/algorithm.md)). It sets the defaults in its row. Every setting that you name
under `training` overrides them, factors included.
[Rewards](../understand/rewards.md#from-rewards-to-advantages) explains the factors. A factor with an algorithm's name
belongs to that algorithm; an algorithm with an empty cell does not use the factor, and refuses it.
"""

CAUSES_HEAD = """\
# Causes of a flat reward

`make docs` generates this page from the code. [`nat diagnose`](../recipes/flat_reward.md) looks for these causes, in
the order of a run's stages, over all epochs; [`nat probe`](../recipes/probe.md) looks for those before the updates, in
its one epoch. After each epoch, a run looks for those marked ‡ in its last epochs, and warns. Keys of
`finetuning.guards` set the bounds of the ranges that name them.

| cause | healthy | what to change |
|---|---|---|
"""

MESSAGES_HEAD = """\
# Messages and what to do

`nat` prints an error as `Error: …`, with a remedy after `→`, and exits with code 1. The run's journal keeps the same
text. Two commands find most mistakes early: `validate` checks the file, reads the rows, and plays and scores one
example with a script as the model; `--dry_run` also opens every component, starts the backend, predicts memory, and
trains nothing.

```bash
nat validate --config_file examples/tic_tac_toe/configs/finetune.yml
nat finetune --config_file examples/tic_tac_toe/configs/finetune.yml --dry_run
```

If the reward of a run stays flat, [`nat diagnose latest`](../../recipes/flat_reward.md) says why.

| page | messages about |
|---|---|
| [Configuration and datasets](before_the_run.md) | keys, types, variables, servers and files, before the run |
| [Rollouts and trajectories](rollouts.md) | agents that fail, block or time out; scores; nothing to train on |
| [Training](training.md) | rewards that do not rise, refused updates, the verdict |
| [The backend and other servers](backend.md) | processes, model files, keys, ports, requests |
| [Runs and their files](runs.md) | signals, full disks, the journal; values shown as `**********` |
| [OpenPipe ART](../../from/openpipe_art.md) | ART's server and clients |
| [NeMo Customizer](../../from/nemo_customizer.md) | NVIDIA's training service: pairs, jobs, deployments |
| [vLLM](../../recipes/vllm.md) | a vLLM that samples for the backend |

## All messages

`make docs` makes this list. Search it for the words on your screen. Each entry is a part of a message; `…` stands for
the part that differs. A message that says all itself has none.

"""

_DEFAULT_IN_HELP = re.compile(r"\s*\[default: (.*)\]$")
"""A default in the help text, for commands whose process sets it."""


def main() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (REFERENCE / name).parent.mkdir(parents=True, exist_ok=True)
        (REFERENCE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """File name → text of the page."""
    return {
        **{f"configuration/{name}": text for name, text in configuration_pages().items()},
        "cli.md": cli_page(),
        "python.md": python_page(),
        "records.md": records_page(),
        "metrics.md": metrics_page(),
        "algorithms.md": algorithms_page(),
        "causes.md": causes_page(),
        "families.md": families_page(),
        "messages/index.md": messages_page(),
    }


def cli_page() -> str:
    """Every command with its options."""
    context = click.Context(cli, info_name="nat")
    return CLI_HEAD + "".join(f"\n{text}\n" for text in _commands(cli, context))


def metrics_page() -> str:
    """A table per prefix, and one of what the backend reports."""
    parts = [METRICS_HEAD]
    for prefix in dict.fromkeys(name.partition("/")[0] for name in EPOCH):
        own = {name: meaning for name, meaning in EPOCH.items() if name.startswith(f"{prefix}/")}
        parts.append(f"\n## {prefix}/\n\n" + _metrics_table(own))
    return "".join(
        [
            *parts,
            "\n" + METRICS_UPDATE + "\n",
            _metrics_table({f"train/{name}": meaning for name, meaning in UPDATE.items()}),
            "\n" + METRICS_OF_COMPLETIONS + "\n",
            _metrics_table({f"train/{name}": meaning for name, meaning in OF_COMPLETIONS.items()}),
            "\n" + METRICS_OF_TEACHER + "\n",
            _metrics_table({f"train/{name}": meaning for name, meaning in OF_TEACHER.items()}),
            "\n" + METRICS_OF_SERVER + "\n",
            _metrics_table({f"train/{name}": meaning for name, meaning in OF_SERVER.items()}),
        ]
    )


def algorithms_page() -> str:
    """The built-in algorithms with their factors and defaults, then the options that algorithms have of their own."""
    algorithms = [*BUILT_IN, find_algorithm("art")]
    lines = [
        ALGORITHMS_HEAD,
        f"| `algorithm` | {' | '.join(f'`{name}`' for name in FACTORS)} | other defaults | paper |",
        "|" + "---|" * (len(FACTORS) + 3),
    ]
    for algorithm in algorithms:
        resolved = resolve(TrainingConfig(algorithm=algorithm.name))
        factors = " | ".join("" if name in algorithm.unused else f"`{resolved.factor(name)}`" for name in FACTORS)
        others = ", ".join(f"`{name}` {json.dumps(value)}" for name, value in algorithm.defaults.items())
        lines.append(f"| `{algorithm.name}` | {factors} | {others} | {algorithm.paper} |")
    lines += ["", *(f"- `{algorithm.name}`: {algorithm.summary}" for algorithm in algorithms)]
    for algorithm in algorithms:
        if fields := list(fields_of(algorithm.options)):
            lines += ["", f"## Options of {algorithm.name}", "", *table(fields)]
    return "\n".join(lines) + "\n"


def causes_page() -> str:
    """A row per condition; marked are those that a risen reward does not rule out, and those that are warned of."""
    rows = [
        f"| **{each.title}**{' †' * each.despite_learning}{' ‡' * bool(each.warns_over)} `{each.name}` | "
        f"{cell(_range(each))} | {cell(each.remedy)} |"
        for each in CONDITIONS
    ]
    return CAUSES_HEAD + "\n".join(rows) + "\n\n† Looked for even if the training reward rose.\n"


def messages_page() -> str:
    """All headings of the pages beside it that quote a message, by name."""
    found = [
        (heading, f"- [{heading}]({path.name}#{_anchor(heading)})\n")
        for path in sorted((REFERENCE / "messages").glob("*.md"))
        for heading in re.findall(r"^### (.+)$", path.read_text("utf-8"), flags=re.MULTILINE)
    ]
    return MESSAGES_HEAD + "".join(entry for _, entry in sorted(found, key=lambda each: each[0].lower()))


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _range(condition: Condition) -> str:
    """The healthy range by default, and the key that sets its bound."""
    key = f" (`guards.{condition.bound}`)" if isinstance(condition.bound, str) else ""
    return condition.range_in(GuardsConfig()) + key


def _metrics_table(meanings: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {cell(meaning)} |" for name, meaning in meanings.items()]
    return "\n".join(["| metric | meaning |", "|---|---|", *rows]) + "\n"


def _commands(group: click.Group, context: click.Context, prefix: str = "nat") -> Iterator[str]:
    yield _command(group, prefix)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{prefix} {name} is listed"
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, context, name), f"{prefix} {name}")
        else:
            yield _command(command, f"{prefix} {name}")


def _command(command: click.Command, name: str) -> str:
    arguments = [str(each.human_readable_name) for each in command.params if isinstance(each, click.Argument)]
    usage = " ".join([name, "[OPTIONS]", *(["COMMAND …"] if isinstance(command, click.Group) else arguments)])
    lines = [f"## {name}\n", cleandoc(command.help or "").strip() + "\n", f"```text\n{usage}\n```"]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if options:
        lines += ["", "| option | value | default | what it does |", "|---|---|---|---|"]
        lines += [_option(option) for option in options]
    return "\n".join(lines)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted([*option.opts, *option.secondary_opts], key=len))
    flag = option.is_flag or option.count
    text = _DEFAULT_IN_HELP.sub("", " ".join((option.help or "").split()))
    return f"| {names} | {'' if flag else _value(option)} | {_option_default(option)} | {cell(text)} |"


def _value(option: click.Option) -> str:
    if option.metavar:
        return f"`{option.metavar}`"
    kind = option.type
    if isinstance(kind, click.Choice):
        return " or ".join(f"`{choice}`" for choice in kind.choices)
    if isinstance(kind, click.IntRange | click.FloatRange):
        word = "integer" if isinstance(kind, click.IntRange) else "number"
        low, high = kind.min, kind.max
        if low is not None and high is not None:
            return f"{word}, {low} to {high}"
        return word + ("" if low is None else f", at least {low}") + ("" if high is None else f", at most {high}")
    return {"integer": "integer", "float": "number", "text": "text", "boolean": "true or false"}.get(
        kind.name, kind.name
    )


def _option_default(option: click.Option) -> str:
    if option.required:
        return "**required**"
    if said := _DEFAULT_IN_HELP.search(option.help or ""):
        return f"`{said[1]}`"
    default = option.to_info_dict()["default"]
    if option.is_flag or default in (None, (), "") or not isinstance(default, str | int | float):
        return ""
    return f"`{default}`"


if __name__ == "__main__":
    main()
