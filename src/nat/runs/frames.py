"""Tables of a run for pandas: a row for each record, under the names of the record's fields."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nat.errors import JournalError
from nat.runs.plot import mean_interval
from nat.runs.records import EpochRecord, ValidationRecord
from nat.runs.rollouts import RolloutRecord
from nat.wire.extras import install_hint, missing_packages

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]

_NESTED = {"run_id", "metrics", "examples", "left_out", "failures", "curriculum_state", "usage"}
"""Fields of an epoch that are no columns of their own, or the same in each row."""
_OF_A_ROLLOUT = (
    "example_id",
    "generation",
    "reward",
    "left_out",
    "error",
    "num_calls",
    "num_failed_calls",
    "prompt_tokens",
    "completion_tokens",
    "broken_prefixes",
    "truncated",
    "seed",
    "seconds",
    "output",
)

EPOCH_COLUMNS = [*(name for name in EpochRecord.model_fields if name not in _NESTED), "left_out"]
ROLLOUT_COLUMNS = ["epoch", *_OF_A_ROLLOUT, "sampled_tokens"]
VALIDATION_COLUMNS = [
    *("epoch", "timestamp", "avg_reward", "min_reward", "max_reward", "num_examples", "num_failed"),
    *("interval_low", "interval_high", "num_rollouts", "seconds"),
]
CALL_COLUMNS = [
    *("epoch", "example_id", "generation", "reward", "left_out", "conversation", "message", "content"),
    *("num_tool_calls", "tokens", "mean_logprob", "temperature", "policy_version"),
]


def frame(rows: Iterable[Row], columns: list[str]) -> "DataFrame":
    """The rows as a DataFrame, which has the columns even if there is no row yet.

    Raises:
        JournalError: pandas is not installed.

    """
    if missing_packages(["pandas"]):
        raise JournalError("a table needs the package pandas, which is not installed", hint=install_hint("notebook"))
    import pandas as pd

    return pd.DataFrame(found) if (found := list(rows)) else pd.DataFrame(columns=columns)


def epoch_row(record: EpochRecord) -> Row:
    """The fields of an epoch, the number of rollouts that were left out, and its metrics."""
    fields = {name: getattr(record, name) for name in EPOCH_COLUMNS}
    return fields | {"left_out": sum(record.left_out.values())} | record.metrics


def validation_row(record: ValidationRecord) -> Row:
    """The statistics of a validation, with the 95 % interval of the mean."""
    low, _, high = mean_interval(rewards) if (rewards := record.rewards) else (None, None, None)
    given = record.statistics | {"epoch": record.epoch, "timestamp": record.timestamp, "seconds": record.seconds}
    given |= {"interval_low": low, "interval_high": high, "num_rollouts": record.num_rollouts}
    return {name: given[name] for name in VALIDATION_COLUMNS}


def rollout_row(epoch: int, record: RolloutRecord) -> Row:
    """The numbers and the output of a rollout, and its scores by other evaluators as `score/NAME`."""
    fields = {name: getattr(record, name) for name in _OF_A_ROLLOUT} | {"left_out": _cause(record)}
    scores = {f"score/{name}": score for name, score in record.scores_beside.items()}
    return {"epoch": epoch, **fields, "sampled_tokens": sum(row.num_sampled for row in record.rows), **scores}


def call_rows(epoch: int, record: RolloutRecord) -> Iterator[Row]:
    """The answers that were sampled in a rollout, each with its tokens where they are recorded."""
    for number, (conversation, messages) in enumerate(record.threads()):
        for answer in conversation.answers:
            said = messages[answer.message] if answer.message < len(messages) else {}
            span, calls = record.span_of(answer), said.get("tool_calls")
            logprobs = span.logprobs if span is not None else None
            values = (
                *(epoch, record.example_id, record.generation, record.reward, _cause(record), number, answer.message),
                *(said.get("content"), len(calls) if isinstance(calls, list) else 0, span and span.size),
                sum(logprobs) / len(logprobs) if logprobs else None,
                *(span and span.temperature, span and span.policy_version),
            )
            yield dict(zip(CALL_COLUMNS, values, strict=True))


def _cause(record: RolloutRecord) -> str | None:
    return None if record.left_out is None else record.left_out.value
