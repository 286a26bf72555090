"""Why a rollout has no output or no score; failures are counted and reported, never scored."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nat.secrets import redact

RAISED = "the workflow raised an error"
TIMED_OUT = "the workflow ran into its deadline"
CALLS_FAILED = "its LLM calls failed, and the agent went on without an answer"
NO_SCORE = "the evaluator gave no score"
SCORED_TOO_LATE = "the evaluator ran into its deadline"
FAILURES = (RAISED, TIMED_OUT, CALLS_FAILED, NO_SCORE, SCORED_TOO_LATE)
COUNTED = "it failed, and failed_score counts it"

_LINE_CHARS = 400


class RolloutFailure(BaseModel):
    """The failure of one run of the workflow on one item."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    item_id: str
    generation: int = 0
    """Which pass over the data it happened in, from 0."""
    kind: Literal["raised", "timeout"]
    type: str
    """Name of the exception's class."""
    message: str
    traceback: str | None = Field(default=None, exclude=True, repr=False)
    """As Python prints it; None if nothing was raised, or if the workflow ran in another process."""

    @property
    def cause(self) -> str:
        return RAISED if self.kind == "raised" else TIMED_OUT

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class FailureCount(BaseModel):
    """Number of rollouts that failed for one cause."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cause: str
    """The cause, as users see it."""
    count: int = Field(ge=1)
    error: str | None = None
    """The most frequent error in one line, the first one on a tie: the last line of its traceback."""
    same_error: bool = True
    """True if all of them have this error."""

    def __str__(self) -> str:
        example = f"{':' if self.same_error else ', e.g.'} {self.error}" if self.error else ""
        return f"{self.count} x {self.cause}{example}"


class FirstFailure(BaseModel):
    """The first rollout with one kind of failure; `failures.txt` lists each kind once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout: str
    """Description of the rollout."""
    cause: str
    error: str | None
    traceback: str | None

    @property
    def way(self) -> str:
        """Equal for failures at the same place in the code, whatever their messages."""
        if self.traceback is None:
            return self.cause
        frames = [line for line in self.traceback.splitlines() if line.startswith("  File ")]
        return "\n".join([self.cause, *frames])


def counted(failures: Iterable[tuple[str, str | None]]) -> list[FailureCount]:
    """Count (cause, error) pairs by cause, the most frequent cause first."""
    errors: dict[str, Counter[str | None]] = {}
    for cause, error in failures:
        errors.setdefault(cause, Counter())[error] += 1
    counts = []
    for cause, found in errors.items():
        [(error, _)] = found.most_common(1)
        shown = error and one_line(error)
        counts.append(FailureCount(cause=cause, count=found.total(), error=shown, same_error=len(found) == 1))
    return sorted(counts, key=lambda each: -each.count)


def total(counts: Iterable[Sequence[FailureCount]]) -> list[FailureCount]:
    """Sum the counts of several epochs by cause, with the first error of each."""
    sums: dict[str, FailureCount] = {}
    for each in (each for some in counts for each in some):
        first = sums.setdefault(each.cause, each.model_copy(update={"count": 0}))
        same = first.same_error and each.same_error and first.error == each.error
        sums[each.cause] = first.model_copy(update={"count": first.count + each.count, "same_error": same})
    return sorted(sums.values(), key=lambda each: -each.count)


def one_line(error: str) -> str:
    """The error without line breaks and secrets, shortened."""
    text = " ".join(redact(error).split())
    return text if len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]} …"
