# ruff: noqa: INP001 - a script beside the pages that it writes, no package
"""Write the generated pages of `docs/reference/`: configuration, cli, metrics, algorithms, causes, machines, families.

Run it with `make docs`. A test compares the committed pages with what this script makes, so a field or an option
that changes without its page fails the build. Attribute docstrings describe the fields, `help` describes the options;
this script holds only the text around them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from families_page import families_page
from machines_page import machines_page
from pydantic_core import to_jsonable_python
from templates_page import templates_page

from nat.backend.algorithms.registry import BUILT_IN, FACTORS, find_algorithm, resolve
from nat.cli.main import cli
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.finetuning import FinetuneConfig, GuardsConfig, TrainerAdapterConfig
from nat.data_models.llm import LLMBaseConfig
from nat.finetuning.diagnosis.catalogue import CONDITIONS
from nat.finetuning.diagnosis.condition import Condition
from nat.finetuning.metrics import EPOCH
from nat.registry.catalog import BASE_CONFIGS, NOUNS, current_catalog
from nat.registry.description import ComponentDescription, FieldDescription, describe, fields_of
from nat.registry.discovery import discover_components
from nat.wire.metrics import OF_COMPLETIONS, OF_SERVER, OF_TEACHER, UPDATE
from nat.wire.training import TrainingConfig

REFERENCE = Path(__file__).parent / "reference"
OWN_PACKAGE = "nat/"
"""Components of other packages (the examples', a user's) are not part of this reference."""

CONFIGURATION_HEAD = """\
# Configuration reference

`make docs` generates this page from the code. `nat info components` prints the same for every installed component,
including those of plug-ins.

## How a file is read

1. `nat` parses the file as YAML (JSON is YAML, too). `base: other.yml` inherits from another file, relative to the
   inheriting file: mappings merge key by key, other values replace those of the base.
2. `-o KEY VALUE` on the command line replaces any value. `KEY` is a dotted path, in which a number is the index of a
   list and `+` the place after its last item; `VALUE` is YAML.
3. `nat` replaces `${NAME}` and `$NAME` with environment variables, value by value. `${NAME:-default}` gives the default
   if the variable is unset or empty. An unset variable without a default is an error. `\\$` is a dollar sign.
4. The files and modules under `imports` are imported. A file is a path that ends in `.py`, such as `agent.py`; Python
   searches its folder first, as for a script. `--import agent.py` on the command line adds one.
5. Components that train, and keys of them, are added where they [follow from others](#what-follows-from-what).
6. The class of its `_type` validates each component. Unknown keys are errors.
7. Every reference to another component must exist.

`nat` reports all errors at once, each with its path. File paths are relative to the current folder.

## What follows from what

A file with `finetuning.enabled: true` may leave out what the type of the trained LLM decides. What it has stays as it
is.

| left out | what is used |
|---|---|
| which LLM is trained | the only one with a usual adapter; of several, the one that `finetuning.target_model` names |
| all components of `trainer_adapters` | one of the usual type, with the name `weights` |
| all components of `trajectory_builders` | likewise, `rollouts` |
| all components of `trainers` | likewise, `trainer` |
| a component's name under `finetuning` | the only component of its section, without those that `phases` name |
| `_type` of a component that is used | the usual one |
| `llm` of an adapter | the LLM that is trained |

"""

FOLLOWS_FOOT = """
An adapter that needs an address or another key without a default must be written; its trajectory builder and its
trainer follow. Types of plug-ins [declare what is usual](../extend/index.md#what-a-yaml-may-leave-out) for them.

`nat validate --config_file=config.yml --show` prints the file with all that follows, and the `config.resolved.yaml` of
a run has it, too. `-o trainer_adapters.weights.training.learning_rate 1e-4` sets a key of a component that the file
leaves out.

"""

CLI_HEAD = """\
# Command line reference

`make docs` generates this page from the code; `nat COMMAND --help` prints the same.

The environment can set options, too: `NAT_<COMMAND>_<OPTION>`, for example `NAT_FINETUNE_CONFIG_FILE`.

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

`training.algorithm` of the [local_trainer_adapter](configuration.md#local_trainer_adapter) names one of these
algorithms, or one from a plug-in ([A loss of your own](../extend/index.md#a-loss-of-your-own)). It sets the
defaults in its row. Every setting that you name under `training` overrides them, factors included.
[Rewards](../understand/rewards.md#from-rewards-to-advantages) explains the factors. A factor with an algorithm's name
belongs to that algorithm; an algorithm with an empty cell does not use the factor, and refuses it.
"""

CAUSES_HEAD = """\
# Causes of a flat reward

`make docs` generates this page from the code. [`nat diagnose`](../recipes/flat_reward.md) looks for these causes, in
the order of a run's stages, over all epochs; [`nat probe`](../recipes/probe.md) looks for those before the updates, in
its one epoch. After each epoch, a run looks for those marked ‡ in its last epochs, and warns. Keys of
`finetuning.guards` set the bounds of the ranges that name them. "Common practice" means the defaults and alarm levels that TRL, verl, DAPO
and prime-rl share; "measured" means on the examples of this repository.

| cause | its number | healthy | source | what to change |
|---|---|---|---|---|
"""

_WORDS = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "True": "true",
    "False": "false",
    "Any": "anything",
    "JsonValue": "anything",
    "Path": "path",
    "SecretStr": "secret",
    "ComparableSecretStr": "secret",
    "SamplingInTraining": "mapping",
}
_REFERENCES = {
    "LLMRef": "key of `llms`",
    "UntrainedLLMRef": "key of `llms`",
    "TrainedLLMRef": "key of `llms`",
    "EvaluatorRef": "key of `eval.evaluators`",
    "TrainerRef": "key of `trainers`",
    "TrainerAdapterRef": "key of `trainer_adapters`",
    "TrajectoryBuilderRef": "key of `trajectory_builders`",
    "FunctionRef": "key of `functions`",
}
_DEFAULT_IN_HELP = re.compile(r"\s*\[default: (.*)\]$")
"""A default in the help text, for commands whose process sets it."""
_COMPONENT_SECTIONS = ("dataset", "evaluators")
"""Keys of `eval` that hold components; each has a chapter."""


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """File name → text of the page."""
    return {
        "configuration.md": configuration_page(),
        "cli.md": cli_page(),
        "metrics.md": metrics_page(),
        "algorithms.md": algorithms_page(),
        "causes.md": causes_page(),
        "models_and_machines.md": machines_page(),
        "families.md": families_page(),
        "templates.md": templates_page(),
    }


def configuration_page() -> str:
    """Sections, then the fixed ones with their keys, then every component type."""
    discover_components()
    components = [c for c in describe(current_catalog()) if c.full_type.startswith(OWN_PACKAGE)]
    sections = [f"| [`{name}`](#{name}) | {field.description} |" for name, field in Config.model_fields.items()]
    parts = [
        CONFIGURATION_HEAD,
        *_usual_types(),
        FOLLOWS_FOOT,
        "## Sections\n\n| section | holds |\n|---|---|\n",
        "\n".join(sections),
        "\n",
    ]
    parts += ["\n" + "\n".join(_section(name, components)).rstrip() + "\n" for name in Config.model_fields]
    return "".join(parts)


def _usual_types() -> Iterator[str]:
    """The table of types that follow from types."""
    own = {c.local_name: c.config_type for group in current_catalog().components.values() for c in group}
    yield "| type of the LLM | usual trainer adapter |\n|---|---|\n"
    for name, kind in sorted(own.items()):
        if issubclass(kind, LLMBaseConfig) and kind.usual_trainer_adapter is not None:
            yield f"| `{name}` | `{kind.usual_trainer_adapter}` |\n"
    yield "\n| type of the adapter | usual trajectory builder | usual trainer |\n|---|---|---|\n"
    for name, kind in sorted(own.items()):
        if issubclass(kind, TrainerAdapterConfig) and kind.usual_trainer is not None:
            yield f"| `{name}` | `{kind.usual_trajectory_builder}` | `{kind.usual_trainer}` |\n"


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
            lines += ["", f"## Options of {algorithm.name}", "", *_table(fields)]
    return "\n".join(lines) + "\n"


def causes_page() -> str:
    """A row per condition; marked are those that a risen reward does not rule out, and those that are warned of."""
    rows = [
        f"| **{each.title}**{' †' * each.despite_learning}{' ‡' * bool(each.warns_over)} `{each.name}` | "
        f"{_cell(each.measure)} | {_cell(_range(each))} | {_cell(each.source)} | {_cell(each.remedy)} |"
        for each in CONDITIONS
    ]
    return CAUSES_HEAD + "\n".join(rows) + "\n\n† Looked for even if the training reward rose.\n"


def _range(condition: Condition) -> str:
    """The healthy range by default, and the key that sets its bound."""
    key = f" (`guards.{condition.bound}`)" if isinstance(condition.bound, str) else ""
    return condition.range_in(GuardsConfig()) + key


def _metrics_table(meanings: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {_cell(meaning)} |" for name, meaning in meanings.items()]
    return "\n".join(["| metric | meaning |", "|---|---|", *rows]) + "\n"


def _section(name: str, components: list[ComponentDescription]) -> Iterator[str]:
    yield f"## {name}\n"
    match name:
        case "imports":
            yield "A list, such as `[agent.py, my_package.evaluators]`. Paths start at the current folder."
        case "general":
            yield "Other keys of the toolkit, such as `telemetry.logging` and `front_end`, cause only a warning.\n"
            yield "### general.telemetry.tracing\n"
            yield "Exporters by name: [traces](../recipes/traces.md). It also names callbacks of `nat eval`, which are"
            yield "registered under `register_eval_callback`. Other types cause only a warning.\n"
            yield from _types(ComponentGroup.EVAL_CALLBACKS, components, level=4)
        case "eval":
            yield "### eval.general\n"
            yield from _table(_without_components(fields_of(EvalGeneralConfig)))
            yield ""
            yield from _chapter(ComponentGroup.DATASETS, components)
            yield from _chapter(ComponentGroup.EVALUATORS, components)
        case "finetuning":
            yield from _table(fields_of(FinetuneConfig))
            yield ""
            yield from _chapter(ComponentGroup.TRACKERS, components)
        case "workflow":
            yield "One function. Its `_type` is one of those below, or one that your package registers.\n"
            yield from _types(ComponentGroup.FUNCTIONS, components, level=3)
        case "functions":
            yield "Functions by name. Each has a `_type` and the keys of its class, like a workflow."
        case _:
            yield from _types(ComponentGroup(name), components, level=3)


def _chapter(group: ComponentGroup, components: list[ComponentDescription]) -> Iterator[str]:
    yield f"### {group}\n"
    yield from _types(group, components, level=4)


def _types(group: ComponentGroup, components: list[ComponentDescription], *, level: int) -> Iterator[str]:
    """The keys that all types of the group share, then each type with its own."""
    types = [c for c in components if c.section == group]
    if not types:
        yield f"No {NOUNS[group]} is built in; plug-ins can add one."
        return
    shared = list(fields_of(BASE_CONFIGS[group]))
    if shared:
        yield f"Every {NOUNS[group]} takes these keys:\n"
        yield from _table(shared)
        yield ""
    known = {field.name for field in shared}
    for component in types:
        yield f"{'#' * level} {component.type}\n"
        yield component.description + "\n"
        own = [field for field in component.fields if field.name not in known]
        if own:
            yield from _table(own)
            yield ""


def _without_components(fields: Iterable[FieldDescription]) -> Iterator[FieldDescription]:
    return (field for field in fields if field.name.partition(".")[0] not in _COMPONENT_SECTIONS)


def _table(fields: Iterable[FieldDescription]) -> Iterator[str]:
    """One row per key, required ones first; a default of several lines follows in a block of its own."""
    rows = sorted(fields, key=lambda field: "." in field.name or not field.required)
    yield "| key | type | default | what it does |"
    yield "|---|---|---|---|"
    for field in rows:
        yield f"| `{field.name}` | {_type(field.type)} | {_default(field)} | {_cell(field.description)} |"
    for field in rows:
        if _is_long(field.default):
            yield f"\nThe default of `{field.name}`:\n\n```text\n{field.default}\n```"


def _type(text: str) -> str:
    """A type in words."""
    text = re.sub(r"'([^']*)'", r"`\1`", text)
    text = re.sub(r"dict\[(\w+), (.+?)\](?=$| )", r"mapping from \1 to \2", text)
    text = re.sub(r"(?:list|tuple)\[(\w+|list\[\w+\])(?:, \.\.\.)?\]", r"list of \1", text)
    text = re.sub(r"tuple\[tuple\[str, str\], (?:\.\.\.|Ellipsis)\]", "list of pairs of text", text)
    text = re.sub(r"list\[(\w+)\]", r"lists of \1", text)
    text = re.sub(r"\b\w*(?:Config|Options|Args|BaseModel)\b", "mapping", text)
    text = re.sub(r"\b\w+Ref\b", lambda found: _REFERENCES[found[0]], text)
    return re.sub(r"\w+", lambda found: _WORDS.get(found[0], found[0]), text).replace(" | ", " or ")


def _default(field: FieldDescription) -> str:
    if field.required:
        return "**required**"
    if _is_long(field.default):
        return "see below"
    if field.default is None and "null" not in field.type:
        return ""
    return f"`{json.dumps(to_jsonable_python(field.default, fallback=str), ensure_ascii=False)}`"


def _is_long(default: Any) -> bool:
    return isinstance(default, str) and "\n" in default


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
    return f"| {names} | {'' if flag else _value(option)} | {_option_default(option)} | {_cell(text)} |"


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
