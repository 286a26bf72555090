"""The components of a training run that a YAML may leave out, since they follow from the LLM that is trained.

The LLM's type names its trainer adapter; the adapter's type names its trajectory builder and its trainer. What the YAML
has stays, key by key. What does not follow stays away: commands that train nothing do not need it, and for the others
`missing_components` says what to write.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import chain, count
from typing import Any, TypeVar

from nat.config.findings import Tree
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.finetuning import TrainerAdapterConfig
from nat.data_models.llm import LLMBaseConfig
from nat.errors import did_you_mean, one_of
from nat.registry.catalog import Catalog

NAMES = {"trainer_adapter": "weights", "trajectory_builder": "rollouts", "trainer": "trainer"}
"""The keys of `finetuning` that may be left out, and the name that each one's component gets.

The section of these components is the key with an `s`.
"""

ROLES, TEAM = "trainer_adapters", "team"
"""The key of `finetuning` with an adapter for each role, and the name of the component that this is short for."""

C = TypeVar("C", bound=TypedBaseModel)
Complete = Callable[[Tree], Tree]
"""Adds the keys that follow to a component."""


def with_defaults(tree: Tree, catalog: Catalog) -> Tree:
    """The tree with what follows: names under `finetuning`, components, and the `_type` and `llm` of these."""
    if not isinstance(tree.get("finetuning"), dict):
        return tree
    llms = _mapping(tree.get("llms")).items()
    kinds = {name: _kind(raw, ComponentGroup.LLMS, LLMBaseConfig, catalog) for name, raw in llms}
    adapters = {name: None if kind is None else kind.usual_trainer_adapter for name, kind in kinds.items()}
    tree = _with_roles(tree, adapters)
    llm = _trained_llm(tree, [name for name, usual in adapters.items() if usual is not None])

    def adapter(raw: Tree) -> Tree:
        own = str(raw.get("llm") or llm)
        typed = _typed(raw, usual := adapters.get(own))
        return {"llm": own, **typed} if usual is not None and TypedBaseModel.discriminator(typed) == usual else raw

    tree = _with_part(tree, "trainer_adapter", adapter)
    builder, trainer = _usual_of_adapter(tree, catalog)
    tree = _with_part(tree, "trajectory_builder", lambda raw: _typed(raw, builder))
    return _with_part(tree, "trainer", lambda raw: _typed(raw, trainer))


def _with_roles(tree: Tree, adapters: Mapping[str, str | None]) -> Tree:
    """The tree with `finetuning.trainer_adapters`, adapters by role, as the component that trains them all.

    The name of an LLM stands for the usual adapter of that LLM, whose model gets the LLM's name.
    """
    roles = tree["finetuning"].get(ROLES)
    if not isinstance(roles, dict) or not roles or tree["finetuning"].get("trainer_adapter") is not None:
        return tree
    roles = {role: own if isinstance(own, dict) else {"adapter": own} for role, own in roles.items()}
    section, llms = _mapping(tree.get("trainer_adapters")), _mapping(tree.get("llms"))
    for own in roles.values():
        name = str(own.get("adapter"))
        llm = str(_mapping(section.get(name)).get("llm") or name)
        if (usual := adapters.get(llm)) is not None:
            section[name] = {"_type": usual, "llm": llm, **_mapping(section.get(name))}
            llms[llm] = {**llms[llm], "model_name": llms[llm].get("model_name") or llm}
    finetuning = {key: value for key, value in tree["finetuning"].items() if key != ROLES}
    team = {"_type": "team_trainer_adapter", "roles": roles}
    parts = {"finetuning": finetuning | {"trainer_adapter": TEAM}, "trainer_adapters": {**section, TEAM: team}}
    return {**tree, **parts, "llms": llms}


def _trained_llm(tree: Tree, known: Collection[str]) -> str | None:
    """Of the LLMs that can be trained, the one that `target_model` names by key or model name, or else the only one."""
    target, llms = tree["finetuning"].get("target_model"), _mapping(tree.get("llms"))
    named = [name for name in known if target and target in (name, llms[name].get("model_name"))]
    chosen = named if named or (isinstance(target, str) and target in llms) else known
    return next(iter(chosen)) if len(chosen) == 1 else None


def _usual_of_adapter(tree: Tree, catalog: Catalog) -> tuple[str | None, str | None]:
    """The types of builder and trainer that go with the run's adapters, if these are of one type."""
    section = _mapping(tree.get("trainer_adapters"))
    used = [section.get(name or "") for name in _used(tree["finetuning"], "trainer_adapter")]
    kinds = {_kind(raw, ComponentGroup.TRAINER_ADAPTERS, TrainerAdapterConfig, catalog) for raw in used}
    kind = kinds.pop() if len(kinds) == 1 else None
    return (None, None) if kind is None else (kind.usual_trajectory_builder, kind.usual_trainer)


def _with_part(tree: Tree, part: str, complete: Complete) -> Tree:
    """The tree with the used components of a part completed, among them the one that `finetuning` does not name."""
    finetuning, section = tree["finetuning"], tree.get(f"{part}s")
    if not isinstance(section, dict | None):
        return tree
    used, given = _used(finetuning, part), _mapping(section)
    own = _unnamed(given, NAMES[part], used, make=bool(finetuning.get("enabled")))
    names = {*used, own}
    given = given if own is None else {**given, own: given.get(own)}
    done = {n: complete(r or {}) if n in names and isinstance(r, dict | None) else r for n, r in given.items()}
    if own is not None and _lacks_type(done[own]):
        del done[own]
    elif own is not None:
        finetuning = {**finetuning, part: own}
    return {**tree, "finetuning": finetuning} | ({f"{part}s": done} if done or section else {})


def _used(finetuning: Tree, part: str) -> list[str | None]:
    """What the phases name, or a run without phases; None where nothing is named."""
    phases = finetuning.get("phases")
    own = map(_mapping, phases) if isinstance(phases, list) and phases else [{}]
    names = [phase.get(part) or finetuning.get(part) for phase in own]
    return [None if name is None else str(name) for name in names]


def _unnamed(section: Tree, name: str, used: Collection[str | None], *, make: bool) -> str | None:
    """The component that is not named: the only one beside those that are, else a new one; None if it is not clear."""
    free = [each for each in section if each not in used]
    if None not in used or len(free) > 1 or not (free or make):
        return None
    new = chain([name], (f"{name}_{number}" for number in count(2)))
    return free[0] if free else next(each for each in new if each not in section)


def _typed(raw: Tree, usual: str | None) -> Tree:
    return {"_type": usual, **raw} if usual is not None and _lacks_type(raw) else raw


def _lacks_type(raw: Any) -> bool:
    return isinstance(raw, dict) and not {"_type", "type"} & raw.keys()


def _kind(raw: Any, group: ComponentGroup, base: type[C], catalog: Catalog) -> type[C] | None:
    """The class of a component; None if it has no registered type."""
    name = TypedBaseModel.discriminator(raw)
    if name is None or not catalog.components[group].has(name):
        return None
    found = catalog.components[group].get(name).config_type
    return found if issubclass(found, base) else None


def _mapping(value: Any) -> Tree:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def missing_components(config: Config) -> list[str]:
    """What an enabled run lacks, with the reason why it does not follow and what to write."""
    own = config.finetuning.each_phase if config.finetuning.enabled else []
    parts = [part for part in NAMES if any(getattr(phase, part) is None for phase in own)]
    free = {part: getattr(config, f"{part}s").keys() - {getattr(phase, part) for phase in own} for part in parts}
    several = [
        f"finetuning.{part}: not set, and {part}s has {one_of(names)}. Name the one that the run uses."
        for part, names in free.items()
        if names
    ]
    if several or not parts:
        return several
    define = "define {0}s: {{{1}: {{_type: …}}}}; `nat info components -t {0}s` lists the types."
    if "trainer_adapter" not in parts:
        found = f"not set, and none goes with trainer_adapters.{one_of({str(phase.trainer_adapter) for phase in own})}"
        return [f"finetuning.{part}: {found}. So {define.format(part, NAMES[part])}" for part in parts]
    kinds = ", ".join(f"{name} is of type {llm.type}" for name, llm in config.llms.items()) or "there is none"
    target = config.finetuning.target_model
    named = "" if target is None else f", and target_model is '{target}'.{did_you_mean(target, config.llms)}"
    return [
        f"finetuning.trainer_adapter: not set, and it follows from the LLM of `_type: local` that target_model names, "
        f"or from the only one: {kinds}{named}. Name the LLM to train, or "
        f"{define.format('trainer_adapter', NAMES['trainer_adapter'])}"
    ]
