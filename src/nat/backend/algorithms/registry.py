"""Find an algorithm by its name, and fill in the settings that the user leaves to it.

A plug-in brings an algorithm with an entry point of the group `nat.algorithms`, whose name is the algorithm's. It is
imported on first use, so a broken plug-in fails only the runs that use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from nat.backend.algorithms import grpo
from nat.backend.algorithms.advantages import Advantage
from nat.backend.algorithms.algorithm import Aggregation, Algorithm, AlgorithmOptions, PolicyLoss, RatioLevel
from nat.backend.algorithms.distill import DISTILL
from nat.backend.algorithms.dpo import DPO, KTO
from nat.backend.algorithms.sft import RFT, SFT
from nat.errors import AlgorithmError, describe_error, did_you_mean, findings_of, one_of
from nat.wire.training import ResolvedTraining, TrainingConfig

GROUP = "nat.algorithms"
"""Entry-point group; the value names an `Algorithm`."""
BUILT_IN = (
    *(grpo.LITE_PPO, grpo.GRPO, grpo.DR_GRPO, grpo.DAPO, grpo.RLOO, grpo.REINFORCE_PP, grpo.GSPO, grpo.CISPO),
    *(DPO, KTO, RFT, SFT, DISTILL),
)

ADVANTAGES: Mapping[str, Advantage] = {
    "grpo": grpo.GRPO.advantage,
    "dr_grpo": grpo.DR_GRPO.advantage,
    "rloo": grpo.RLOO.advantage,
    "reinforce_pp": grpo.REINFORCE_PP.advantage,
    "given": Advantage(compare=None),
}
RATIO_LEVELS: Mapping[str, RatioLevel] = {"token": grpo.token, "sequence": grpo.sequence}
POLICY_LOSSES: Mapping[str, PolicyLoss] = {"clip": grpo.clip, "cispo": grpo.cispo}
AGGREGATIONS: Mapping[str, Aggregation] = {
    "token_mean": grpo.token_mean,
    "seq_mean": grpo.seq_mean,
    "constant": grpo.constant,
}
FACTORS: Mapping[str, Mapping[str, Any]] = {
    "advantage": ADVANTAGES,
    "importance_sampling_level": RATIO_LEVELS,
    "policy_loss": POLICY_LOSSES,
    "aggregation": AGGREGATIONS,
}
"""The factors that a user may choose whatever the algorithm is, by setting and value."""


@dataclass(frozen=True)
class Resolved:
    """An algorithm with every setting filled in, as an update uses it."""

    algorithm: Algorithm
    """With the factors that the user chose."""
    config: TrainingConfig
    """What the user set, then the algorithm's defaults, then the general ones; its factors are in `algorithm`."""
    options: AlgorithmOptions

    def with_learning_rate(self, usual: float) -> "Resolved":
        """The same with this learning rate, times the algorithm's factor, if the user has set none."""
        if self.config.learning_rate is not None:
            return self
        rate = usual * self.algorithm.usual_rate
        return replace(self, config=self.config.model_copy(update={"learning_rate": rate}))

    def report(self) -> ResolvedTraining:
        """The same in plain values, for the records of a run."""
        settings = self.config.model_dump(mode="json", exclude={"algorithm"})
        settings |= {name: self.factor(name) for name in FACTORS}
        settings = {name: value for name, value in settings.items() if name not in self.algorithm.unused}
        settings["options"] = self.options.model_dump(mode="json")
        return ResolvedTraining(
            algorithm=self.algorithm.name,
            paper=self.algorithm.paper,
            compares="group" if self.algorithm.pairs is not None else self.algorithm.advantage.among,
            only_samples=self.algorithm.needs_logprobs,
            needs_teacher=self.algorithm.teacher_advantage is not None,
            settings=settings,
        )

    def factor(self, name: str) -> str:
        """The name of the factor in use; the algorithm's own factor has the algorithm's name."""
        used = getattr(self.algorithm, name)
        return next((known for known, factor in FACTORS[name].items() if factor == used), self.algorithm.name)


def find_algorithm(name: str) -> Algorithm:
    """Give the built-in algorithm of this name, or that of a plug-in."""
    built_in = {algorithm.name: algorithm for algorithm in BUILT_IN}
    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == name]
    sources = (["a built-in one"] if name in built_in else []) + [_place(point) for point in found]
    if len(sources) > 1:
        raise AlgorithmError(
            f"training.algorithm: {name!r} is the name of {len(sources)} algorithms: {', '.join(sources)}",
            hint="uninstall all but one of them, or rename the entry point of your plug-in",
        )
    if found:
        return _load(found[0])
    if name not in built_in:
        known = {*built_in, *(point.name for point in points)}
        remedy = did_you_mean(name, known) or f" Install the plug-in with this entry point of {GROUP!r}."
        raise AlgorithmError(f"training.algorithm: {name!r} is unknown; there are {one_of(known)}.{remedy}")
    return built_in[name]


def resolve(config: TrainingConfig) -> Resolved:
    """Fill in the algorithm's defaults wherever the user has set nothing."""
    algorithm = find_algorithm(config.algorithm)
    if without_effect := sorted(algorithm.unused & config.model_fields_set):
        raise AlgorithmError(
            f"training.{', training.'.join(without_effect)}: without effect with the algorithm {algorithm.name!r}",
            hint="remove what has no effect, or choose another algorithm",
        )
    chosen = {
        name: factors[getattr(config, name)] for name, factors in FACTORS.items() if name in config.model_fields_set
    }
    options = _options(algorithm, config.options)
    try:
        filled = TrainingConfig.model_validate({**algorithm.defaults, **config.model_dump(exclude_unset=True)})
    except ValidationError as error:
        raise AlgorithmError(
            f"the defaults of the algorithm {algorithm.name!r} and your settings contradict each other: "
            + "; ".join(map(str, findings_of(error))),
            hint="set the named settings yourself under `training`, or correct the algorithm's `defaults`",
        ) from error
    return Resolved(replace(algorithm, **chosen), filled, options)


def _options(algorithm: Algorithm, given: Mapping[str, Any]) -> AlgorithmOptions:
    allowed = algorithm.options.model_fields
    hint = f"options of the algorithm {algorithm.name!r}: {', '.join(allowed) or 'none'}"
    if unknown := [name for name in given if name not in allowed]:
        raise AlgorithmError(f"training.options: unknown {', '.join(map(repr, unknown))}", hint=hint)
    try:
        return algorithm.options.model_validate(given)
    except ValidationError as error:
        findings = "; ".join(f"training.options.{finding}" for finding in findings_of(error))
        raise AlgorithmError(findings, hint=hint) from error


def _load(point: EntryPoint) -> Algorithm:
    try:
        found = point.load()
    except Exception as error:  # the import of a plug-in may fail in any way
        raise AlgorithmError(
            f"the algorithm {point.name!r} of {_place(point)} failed to import: {describe_error(error)}",
            hint="repair or uninstall that plug-in, or choose another algorithm",
        ) from error
    if not isinstance(found, Algorithm) or found.name != point.name:
        seen = f"the algorithm {found.name!r}" if isinstance(found, Algorithm) else f"a {type(found).__name__}"
        raise AlgorithmError(
            f"the entry point {point.name!r} of {_place(point)} gives {seen}; it must be an Algorithm of that name",
            hint=f"in the plug-in, let [project.entry-points.{GROUP!r}] say NAME = 'module:ALGORITHM'",
        )
    return found


def _place(point: EntryPoint) -> str:
    return f"{point.dist.name} ({point.value})" if point.dist else point.value
