"""Keep rollouts and scores as they end, so that a run that goes on neither plays nor judges them again.

A rollout whose output JSON cannot hold is not kept, and a score neither. Failures are kept, too, but given back only
where training has gone on from them: their cause may be gone.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from nat.capture.interning import Interner
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.llm_usage import LLMUsage, added, usage_of_steps
from nat.rollout.step_lines import decoded, encoded
from nat.secrets import redact_json
from nat.wire.json import compressed, decompressed

ALL_PASSES = -1
"""Stands for the pass where answers of several are scored together."""
_END = b"\n"
_FACTS = TypeAdapter(Rollout)

KeptKey = tuple[int, str, str]
"""Pass, evaluator (empty for the rollout itself) and item."""


@dataclass(frozen=True)
class Keeper:
    """What one epoch, or one validation, has finished."""

    known: Mapping[KeptKey, bytes]
    """What an earlier process kept."""
    keep: Callable[[Mapping[KeptKey, bytes]], None]
    """Keeps all of these, or none if it is interrupted."""
    with_failures: bool = False
    """Give failures back."""

    @property
    def items(self) -> set[str]:
        """The items that have a rollout."""
        return {item for _, evaluator, item in self.known if not evaluator}

    def of_pass(self, number: int) -> "PassKeeper":
        return PassKeeper(self, number)


@dataclass
class PassKeeper:
    """What one pass over the data has finished."""

    _keeper: Keeper
    number: int
    steps: Sequence[IntermediateStep] = ()
    """The evaluators' own steps, to which more are added while they score."""
    usage: list[Mapping[str, LLMUsage]] = field(default_factory=list)
    """What the evaluators' calls took in an earlier process."""
    _counted: int = 0

    def rollout(self, item: EvalInputItem) -> Rollout | None:
        """The rollout of an item, if it is known."""
        content = self._keeper.known.get((self.number, "", str(item.id)))
        found = None if content is None else read_rollout(decompressed(content))
        return found if found is None or self._keeper.with_failures or not found.failed else None

    def keep_rollout(self, rollout: Rollout) -> None:
        if (content := rollout_bytes(rollout)) is not None:
            self._keep({(self.number, "", rollout.item_id): content})

    def scores(self, evaluator: str, items: Iterable[EvalInputItem], *, together: bool) -> dict[str, EvalOutputItem]:
        """The known scores of items by their ids; those of several passes if they are scored `together`."""
        number, found = self._pass(together=together), {}
        for item in items:
            if (content := self._keeper.known.get((number, evaluator, str(item.id)))) is None:
                continue
            score, used = _read_score(decompressed(content))
            if score.score is not None or self._keeper.with_failures:
                found[str(item.id)] = score
                self.usage.append(used)
        return found

    def keep_scores(self, evaluator: str, scores: Iterable[EvalOutputItem], *, together: bool) -> None:
        """Keep scores that were found together, with what the calls took since the last ones were kept."""
        number, found = self._pass(together=together), dict[KeptKey, bytes]()
        for score in scores:
            used, self._counted = usage_of_steps(self.steps[self._counted :]), len(self.steps)
            if (content := _score_bytes(score, used)) is not None:
                found[number, evaluator, str(score.id)] = content
        self._keep(found)

    def judge_usage(self) -> dict[str, LLMUsage]:
        """What the evaluators' calls took, those of an earlier process included."""
        return added([*self.usage, usage_of_steps(self.steps)])

    def _keep(self, found: Mapping[KeptKey, bytes]) -> None:
        if found:
            self._keeper.keep({key: compressed(content) for key, content in found.items()})

    def _pass(self, *, together: bool) -> int:
        return ALL_PASSES if together else self.number


def rollout_bytes(rollout: Rollout) -> bytes | None:
    """A rollout without secrets; None if JSON cannot hold its output, or a text that is no Unicode."""
    try:
        facts = replace(rollout, output=_as_json(rollout.output), steps=[])
        traceback = rollout.error and rollout.error.traceback
        lines = [to_json(facts), to_json(traceback), *encoded(rollout.steps)]
    except (LookupError, ValueError):  # PydanticSerializationError is one
        return None
    return _END.join(redact_json(line.decode()).encode() for line in lines)


def read_rollout(content: bytes) -> Rollout | None:
    """A kept rollout; None if the class of its output is not there."""
    first, traceback, *lines = content.split(_END)
    facts = _FACTS.validate_json(first)
    try:
        output = _from_json(*facts.output)
    except LookupError:
        return None
    error = facts.error and facts.error.model_copy(update={"traceback": from_json(traceback)})
    return replace(facts, output=output, error=error, steps=decoded(lines, Interner()))


def _score_bytes(score: EvalOutputItem, used: Mapping[str, LLMUsage]) -> bytes | None:
    """A score without secrets; None if JSON cannot hold it."""
    try:
        content = redact_json(
            to_json({"score": dict(score), "usage": used}, fallback=repr, inf_nan_mode="constants").decode()
        )
    except ValueError:
        return None
    again = _read_score(content.encode())[0].score
    return content.encode() if type(again) is type(score.score) and again == score.score else None


def _read_score(content: bytes) -> tuple[EvalOutputItem, dict[str, LLMUsage]]:
    record = from_json(content)
    rewards = record["score"]["step_rewards"]
    if rewards is not None:  # JSON has no numbers as keys
        numbered = {int(key) if key.removeprefix("-").isdigit() else key: reward for key, reward in rewards.items()}
        record["score"]["step_rewards"] = numbered
    used = {name: LLMUsage.model_validate(each) for name, each in record["usage"].items()}
    return EvalOutputItem.model_validate(record["score"]), used


def _as_json(value: Any) -> tuple[str | None, Any]:
    """The class of a pydantic model, and a value that JSON holds; ValueError if it would come back as another value."""
    name, plain = None, value
    if isinstance(value, BaseModel):
        name, plain = f"{type(value).__module__}:{type(value).__qualname__}", value.model_dump(mode="json")
    again = _from_json(name, from_json(to_json(plain)))
    if repr(again) != repr(value):  # 1 is not True, and a list is not a tuple
        raise ValueError("JSON cannot hold it")
    return name, plain


def _from_json(name: str | None, plain: Any) -> Any:
    """The value; LookupError if its class is not in a module that the workflow has imported."""
    if name is None:
        return plain
    module, _, path = name.partition(":")
    kind: Any = sys.modules[module]
    for part in path.split("."):
        kind = getattr(kind, "__dict__", {}).get(part)  # `getattr` would have some modules import others
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        raise LookupError(name)
    return kind.model_validate(plain)
