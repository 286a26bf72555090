"""The pages `reference/configuration/`: how a file is read, and a page for each section or a few of them.

Each begins with the keys that are set most often; this module chooses them, the code describes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reference_tables import cell, default_of, first_sentence, table

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.finetuning import FinetuneConfig, PhaseConfig, TrainerAdapterConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.llm_usage import PriceConfig
from nat.plugins.team import RoleConfig
from nat.plugins.tinker.register import REFUSED
from nat.registry.catalog import GROUPS, current_catalog
from nat.registry.description import ComponentDescription, FieldDescription, describe, fields_of
from nat.registry.discovery import discover_components
from nat.wire.training import TrainingConfig

OWN_PACKAGE = "nat/"
"""Components of other packages (the examples', a user's) are not part of this reference."""

HEAD = """\
# Configuration reference

`make docs` generates these pages from the code. `nat info components` prints the same for every installed component,
including those of plug-ins.

## Sections

| section | holds |
|---|---|
"""
READ = """
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
6. Each component is validated by the class of its `_type`. Unknown keys are errors.
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
trainer follow. Types of plug-ins [declare what is usual](../../extend/components.md#what-a-yaml-may-leave-out) for
them.

`nat validate --config_file=config.yml --show` prints the file with all that follows, and the `config.resolved.yaml` of
a run has it, too. `-o trainer_adapters.weights.training.learning_rate 1e-4` sets a key of a component that the file
leaves out.

## imports

A list, such as `[agent.py, my_package.evaluators]`. Paths start at the current folder.
"""
TRAINING = """\
# Configuration: training

The key `training` of the trainer adapters [`local_trainer_adapter`](trainer_adapters.md#local_trainer_adapter),
[`tinker_trainer_adapter`](trainer_adapters.md#tinker_trainer_adapter) and
[`command_trainer_adapter`](trainer_adapters.md#command_trainer_adapter). Defaults are those of `lite_ppo`; each
[algorithm](../algorithms.md) has its own. [Defaults](../../understand/defaults.md) says what suits which model.
"""


@dataclass(frozen=True)
class _Page:
    """Sections that share a page."""

    title: str
    sections: Sequence[str]
    often: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What is set most often: keys by component type, or by the heading of a table."""


_PAGES: Mapping[str, _Page] = {
    "general.md": _Page("general", ["general"], {"otelcollector": ["endpoint", "project"]}),
    "llms.md": _Page(
        "llms", ["llms"], {"local": ["model", "max_tokens", "lora"], "openai": ["model_name", "base_url"]}
    ),
    "workflow_and_functions.md": _Page(
        "workflow, functions, ttc_strategies",
        ["workflow", "functions", "ttc_strategies"],
        {"command": ["llm", "command", "reward_file"], "service": ["llm", "url"]},
    ),
    "eval.md": _Page(
        "eval",
        ["eval"],
        {
            "eval.general": ["max_concurrency", "item_timeout"],
            "eval.general.dataset": ["file_path", "structure.question_key", "structure.answer_key"],
        },
    ),
    "trajectory_builders.md": _Page(
        "trajectory_builders",
        ["trajectory_builders"],
        {
            "local_traj_builder": ["num_generations", "examples_per_epoch", "max_refills"],
            "dataset_traj_builder": ["file_path", "examples_per_epoch"],
        },
    ),
    "trainer_adapters.md": _Page(
        "trainer_adapters",
        ["trainer_adapters"],
        {
            "local_trainer_adapter": ["llm", "training", "teacher"],
            "openpipe_art_trainer_adapter": ["backend.ip", "backend.port"],
        },
    ),
    "trainers.md": _Page("trainers", ["trainers"], {"nemo_customizer_trainer": ["num_runs", "wait_for_completion"]}),
    "finetuning.md": _Page(
        "finetuning",
        ["finetuning"],
        {"finetuning": ["enabled", "reward_function.name", "num_epochs", "target_functions", "output_dir"]},
    ),
}
_TRAINING_OFTEN = ["algorithm", "learning_rate", "steps_per_batch", "beta", "micro_batch_tokens"]
_COMPONENT_SECTIONS = ("dataset", "evaluators")
"""Keys of `eval` that hold components; each has a chapter."""


def configuration_pages() -> dict[str, str]:
    """File name → text: the index, a page per section or a few, and one for `training`."""
    discover_components()
    components = [_tidied(each) for each in describe(current_catalog()) if each.full_type.startswith(OWN_PACKAGE)]
    page_of = {section: name for name, page in _PAGES.items() for section in page.sections}
    rows = [
        f"| [`{name}`]({page_of.get(name, '')}#{name}) | {cell(each.description or '')} |\n"
        for name, each in Config.model_fields.items()
    ]
    rows.append("| [`training`](training.md) | The settings of an update, a key of trainer adapters. |\n")
    index = "".join([HEAD, *rows, READ, *_usual_types(), FOLLOWS_FOOT])
    pages = {name: _page(page, components) for name, page in _PAGES.items()}
    return {"index.md": index, **pages, "training.md": _training_page()}


def _tidied(component: ComponentDescription) -> ComponentDescription:
    """Without keys that are refused, and with a link in place of all keys of `training`."""
    fields, training = component.fields, list(fields_of(TrainingConfig, "training."))
    if all(each in fields for each in training):
        fields = [each for each in fields if each not in training]
        for each in fields:
            if each.name == "training":
                each.description += " [All keys](training.md)"
    if component.type == "tinker":
        fields = [each for each in fields if each.name not in REFUSED]
    if component.type == "team_trainer_adapter":
        fields = [*fields, *fields_of(RoleConfig, "roles.NAME.")]
    return component.model_copy(update={"fields": fields})


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


def _page(page: _Page, components: list[ComponentDescription]) -> str:
    """The keys that are set most often, then every section."""
    known = {each.type: each.fields for each in components}
    known |= {
        "eval.general": list(fields_of(EvalGeneralConfig)),
        "eval.general.dataset": list(fields_of(GROUPS[ComponentGroup.DATASETS].base_config)),
        "finetuning": list(fields_of(FinetuneConfig)),
    }
    often = [(owner, _named(known[owner], name)) for owner, names in page.often.items() for name in names]
    parts = [f"# Configuration: {page.title}\n\n[How a file is read](index.md). Set most often:\n", *_often(often)]
    parts += ["\n".join(_section(name, components)).rstrip() + "\n" for name in page.sections]
    return "\n".join(parts)


def _named(fields: Iterable[FieldDescription], name: str) -> FieldDescription:
    return next(each for each in fields if each.name == name)


def _often(keys: Sequence[tuple[str, FieldDescription]]) -> Iterator[str]:
    rows = [
        f"| `{each.name}` | [{owner}](#{owner.replace('.', '')}) | {default_of(each)} | "
        f"{cell(first_sentence(each.description))} |"
        for owner, each in keys
    ]
    yield "\n".join(["| key | of | default | what it does |", "|---|---|---|---|", *rows]) + "\n"


def _training_page() -> str:
    fields = list(fields_of(TrainingConfig))
    often = [_named(fields, name) for name in _TRAINING_OFTEN]
    rows = [f"| `{each.name}` | {default_of(each)} | {cell(first_sentence(each.description))} |" for each in often]
    top = "\n".join(["| key | default | what it does |", "|---|---|---|", *rows])
    return f"{TRAINING}\nSet most often:\n\n{top}\n\n## All keys\n\n" + "\n".join(table(fields)) + "\n"


def _section(name: str, components: list[ComponentDescription]) -> Iterator[str]:
    yield f"## {name}\n"
    match name:
        case "general":
            yield "Other keys of the toolkit, such as `telemetry.logging` and `front_end`, cause only a warning.\n"
            yield "### general.telemetry.tracing\n"
            yield "Exporters by name: [traces](../../recipes/traces.md). It also names callbacks of `nat eval`, which"
            yield "are registered under `register_eval_callback`. Other types cause only a warning.\n"
            yield from _types(ComponentGroup.EVAL_CALLBACKS, components, level=4)
        case "eval":
            yield "### eval.general\n"
            yield from table(_without_components(fields_of(EvalGeneralConfig)))
            yield ""
            yield from _chapter(ComponentGroup.DATASETS, components)
            yield from _chapter(ComponentGroup.EVALUATORS, components)
        case "finetuning":
            yield from table(_finetuning_keys())
            yield ""
            yield from _chapter(ComponentGroup.TRACKERS, components)
        case "workflow":
            yield "One function. Its `_type` is one of those below, or one that your package registers.\n"
            yield from _types(ComponentGroup.FUNCTIONS, components, level=3)
        case "functions":
            yield "Functions by name. Each has a `_type` and the keys of its class, like a workflow."
        case _:
            yield from _types(ComponentGroup(name), components, level=3)


def _finetuning_keys() -> Iterator[FieldDescription]:
    """All keys, with those of mappings that lists and names hold."""
    for each in fields_of(FinetuneConfig):
        yield each
        if each.name == "phases":
            nested = "phases.0.curriculum_learning."
            yield from (key for key in fields_of(PhaseConfig, "phases.0.") if not key.name.startswith(nested))
        elif each.name == "budget.prices":
            yield from fields_of(PriceConfig, "budget.prices.NAME.")


def _chapter(group: ComponentGroup, components: list[ComponentDescription]) -> Iterator[str]:
    yield f"### {group}\n"
    yield from _types(group, components, level=4)


def _types(group: ComponentGroup, components: list[ComponentDescription], *, level: int) -> Iterator[str]:
    """The keys that all types of the group share, then each type with its own."""
    types = [c for c in components if c.section == group]
    if not types:
        yield f"No {GROUPS[group].noun} is built in; plug-ins can add one."
        return
    shared = list(fields_of(GROUPS[group].base_config))
    if shared:
        yield f"Every {GROUPS[group].noun} takes these keys:\n"
        yield from table(shared)
        yield ""
    known = {each.name for each in shared}
    for component in types:
        yield f"{'#' * level} {component.type}\n"
        yield component.description + "\n"
        own = [each for each in component.fields if each.name not in known]
        if own:
            yield from table(own)
            yield ""


def _without_components(fields: Iterable[FieldDescription]) -> Iterator[FieldDescription]:
    return (each for each in fields if each.name.partition(".")[0] not in _COMPONENT_SECTIONS)
