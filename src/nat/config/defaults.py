"""The components of a training run that a YAML may leave out, since they follow from the LLM that is trained.

The LLM's type names its trainer adapter; the adapter's type names its trajectory builder and its trainer. What the YAML
has stays, key by key. What does not follow stays away: commands that train nothing do not need it, and for the others
`missing_components` says what to write.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import chain, count
from typing import Any, TypeVar

from nat.config.findings import Tree
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.finetuning import TrainerAdapterConfig
from nat.data_models.llm import LLMBaseConfig
from nat.errors import did_you_mean, one_of
from nat.registry.catalog import current_catalog

NAMES = {"trainer_adapter": "weights", "trajectory_builder": "rollouts", "trainer": "trainer"}
"""The keys of `finetuning` that may be left out, and the name that each one's component gets.

The section of these components is the key with an `s`.
"""

TEAM = "team"
"""The name of the component that `finetuning.trainer_adapters`, an adapter for each role, is short for."""

C = TypeVar("C", bound=TypedBaseModel)


def with_defaults(tree: Tree) -> Tree:
    """A copy of the tree with what follows: names under `finetuning`, components, and the `_type` and `llm` of these.

    A tree whose sections are no mappings is returned as it is.
    """
    made = deepcopy(tree)
    finetuning: Any = made.get("finetuning")
    llms = made.setdefault("llms", {})
    adapters, builders, trainers = (made.setdefault(f"{part}s", {}) for part in NAMES)
    if not all(isinstance(each, dict) for each in (finetuning, llms, adapters, builders, trainers)):
        return tree
    kinds = {name: _kind(raw, ComponentGroup.LLMS, LLMBaseConfig) for name, raw in llms.items()}
    usual = {name: kind.usual_trainer_adapter for name, kind in kinds.items() if kind and kind.usual_trainer_adapter}
    _spell_out_roles(finetuning, adapters, llms, usual)
    target = finetuning.get("target_model")
    named = [name for name in usual if target and target in (name, llms[name].get("model_name"))]
    trained = named or ([] if target in [*llms] else [*usual])

    def adapter(raw: Tree) -> Tree:
        own = raw.get("llm") or (trained[0] if len(trained) == 1 else None)
        kind = usual.get(str(own))
        same = kind is not None and TypedBaseModel.discriminator(raw) in (None, kind)
        return {**_typed(raw, kind), "llm": str(own)} if same else {}

    used = _complete(finetuning, adapters, "trainer_adapter", adapter)
    types = {_kind(adapters.get(name), ComponentGroup.TRAINER_ADAPTERS, TrainerAdapterConfig) for name in used}
    [kind] = types if len(types) == 1 else [None]
    builder, trainer = (kind.usual_trajectory_builder, kind.usual_trainer) if kind else (None, None)
    _complete(finetuning, builders, "trajectory_builder", lambda raw: _typed(raw, builder))
    _complete(finetuning, trainers, "trainer", lambda raw: _typed(raw, trainer))
    return {key: value for key, value in made.items() if value or key in tree}


def _spell_out_roles(finetuning: Tree, adapters: Tree, llms: Tree, usual: Mapping[str, str]) -> None:
    """Make `finetuning.trainer_adapters`, adapters by role, the component that trains them all.

    The name of an LLM stands for the usual adapter of that LLM, whose model gets the LLM's name.
    """
    roles = finetuning.get("trainer_adapters")
    if not isinstance(roles, dict) or not roles or finetuning.get("trainer_adapter") is not None:
        return
    roles = {role: own if isinstance(own, dict) else {"adapter": own} for role, own in roles.items()}
    for own in roles.values():
        name = str(own.get("adapter"))
        given = adapters.get(name, {})
        llm = str((isinstance(given, dict) and given.get("llm")) or name)
        if llm in usual and isinstance(given, dict):
            adapters[name] = {"_type": usual[llm], "llm": llm, **given}
            llms[llm]["model_name"] = llms[llm].get("model_name") or llm
    adapters[TEAM] = {"_type": "team_trainer_adapter", "roles": roles}
    del finetuning["trainer_adapters"]
    finetuning["trainer_adapter"] = TEAM


def _complete(finetuning: Tree, section: Tree, part: str, following: Callable[[Tree], Tree]) -> set[str]:
    """Name the component of a part that the phases do not name, and add what follows to those that are used.

    It is the only one beside those that are named, or a new one. Returns the names of those that are used.
    """
    phases = finetuning.get("phases")
    phases = [each for each in phases if isinstance(each, dict)] if isinstance(phases, list) and phases else [{}]
    given = [phase.get(part) or finetuning.get(part) for phase in phases]
    used = {str(name) for name in given if name is not None}
    free = [name for name in section if name not in used]
    if None in given and not free and finetuning.get("enabled") and following({}):
        new = chain([NAMES[part]], (f"{NAMES[part]}_{number}" for number in count(2)))
        free = [next(name for name in new if name not in section)]
        section[free[0]] = {}
    if None in given and len(free) == 1:
        finetuning[part] = free[0]
        used.add(free[0])
    for name in used:
        if isinstance(raw := section.get(name), dict):
            section[name] = {**following(raw), **raw}
    return used


def _typed(raw: Tree, kind: str | None) -> Tree:
    return {} if kind is None or {"_type", "type"} & raw.keys() else {"_type": kind}


def _kind(raw: Any, group: ComponentGroup, base: type[C]) -> type[C] | None:
    """The class of a component; None if it has no registered type."""
    name, known = TypedBaseModel.discriminator(raw), current_catalog().components[group]
    found = known.get(name).config_type if name is not None and known.has(name) else None
    return found if found is not None and issubclass(found, base) else None


def missing_components(config: Config) -> list[str]:
    """The first part that an enabled run lacks, with the reason why it does not follow and what to write."""
    own = config.finetuning.each_phase if config.finetuning.enabled else []
    for part, name in NAMES.items():
        named = {getattr(phase, part) for phase in own}
        if None not in named:
            continue
        if free := getattr(config, f"{part}s").keys() - named:
            return [f"finetuning.{part}: not set, and {part}s has {one_of(free)}. Name the one that the run uses."]
        why = f"none goes with trainer_adapters.{one_of({str(phase.trainer_adapter) for phase in own})}. So "
        if part == "trainer_adapter":
            kinds = ", ".join(f"{each} is of type {llm.type}" for each, llm in config.llms.items()) or "there is none"
            target = config.finetuning.target_model
            near = "" if target is None else f", and target_model is '{target}'.{did_you_mean(target, config.llms)}"
            why = (
                "it follows from the LLM of `_type: local` that target_model names, or from the only one: "
                f"{kinds}{near}. Name the LLM to train, or "
            )
        write = f"define {part}s: {{{name}: {{_type: …}}}}; `nat info components -t {part}s` lists the types."
        return [f"finetuning.{part}: not set, and {why}{write}"]
    return []
