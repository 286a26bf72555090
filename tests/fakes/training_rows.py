"""Rows of training from what a test says of each token."""

from collections.abc import Sequence
from itertools import groupby

from nat.wire.training import Span, TrainingGroup, TrainingJob, TrainingRollout, TrainingRow


def row_of(
    token_ids: Sequence[int],
    logprobs: Sequence[float | None],
    *,
    values: Sequence[float] | None = None,
    temperatures: Sequence[float] | None = None,
    versions: Sequence[str | None] | None = None,
) -> TrainingRow:
    """A row whose sampled tokens are those with a log probability, each unbroken part of them an answer.

    `values`, `temperatures` and `versions` have one for each answer.
    """
    parts = [
        [at for at, _ in part]
        for sampled, part in groupby(enumerate(logprobs), lambda pair: pair[1] is not None)
        if sampled
    ]
    spans = [
        Span(
            start=part[0],
            stop=part[-1] + 1,
            logprobs=logprobs[part[0] : part[-1] + 1],
            value=None if values is None else values[number],
            temperature=1.0 if temperatures is None else temperatures[number],
            policy_version=None if versions is None else versions[number],
        )
        for number, part in enumerate(parts)
    ]
    return TrainingRow(token_ids=list(token_ids), spans=spans)


def answer_row(prompt: Sequence[int], answer: Sequence[int], logprobs: Sequence[float] | None = None) -> TrainingRow:
    """A prompt and one answer, which nobody sampled without log probabilities."""
    start, stop = len(prompt), len(prompt) + len(answer)
    span = Span(start=start, stop=stop, logprobs=None if logprobs is None else list(logprobs))
    return TrainingRow(token_ids=[*prompt, *answer], spans=[span])


def logprobs_of(row: TrainingRow) -> list[float | None]:
    """The log probability of each token, None where it was not sampled."""
    found: list[float | None] = [None] * len(row.token_ids)
    for span in row.spans:
        found[span.start : span.stop] = span.logprobs or [None] * span.size
    return found


def sent_job(job_id: str) -> TrainingJob:
    """A job of one rollout."""
    rollout = TrainingRollout(reward=1.0, rows=[row_of([1, 2], [None, -0.5])])
    return TrainingJob(id=job_id, groups=[TrainingGroup(id="g", rollouts=[rollout])])
