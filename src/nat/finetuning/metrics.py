"""The metrics of an epoch, from its records; pure.

Names have the prefixes reward/ rollout/ val/ drift/ train/ time/ cost/. Metrics that the backend reports of its job get
the prefix train/ unless they have one of these. An unknown metric is absent. `docs/epoch_metrics.py` describes each,
and `docs/update_metrics.py` those of the embedded backend.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean, pstdev
from types import MappingProxyType
from typing import Any

from nat.data_models.finetuning import Trajectory
from nat.data_models.score import mean
from nat.finetuning.trajectories.groups import has_signal, mean_reward, reward_spread
from nat.runs.records import RELATIVE, CommonAnswer
from nat.runs.rollouts import RolloutRecord
from nat.wire.json import without_surrogates
from nat.wire.rewards import equal

PREFIXES = ("train/", "rollout/", "reward/", "val/", "time/", "drift/", "cost/")
LOST_CALLS = "rollout/lost_calls_"
"""Prefix of the number of answers with a tool call that could not be used, by cause."""
PRICE = "cost/price"
STALE_ROWS = "drift/stale_rows"
SAME_ANSWER, SAME_SCORE = "rollout/same_answer", "reward/same_answer"

BEGINNING = 40
"""Characters by which cut-off answers are compared: what a model writes without an end differs further on."""
FEWEST_PROMPTS = 6
"""With fewer, equal answers may all be right."""

_ERROR = re.compile(r"\W*(\w*error|\w*exception|traceback|failed|failure)\b", re.IGNORECASE)
"""The beginning of a tool's result that tells of an error, in prose or as the first key of JSON."""

Group = Sequence[RolloutRecord]
"""Rollouts of one example, each with a score."""
Groups = Sequence[Sequence[Trajectory]]


def epoch_metrics(
    records: Sequence[RolloutRecord],
    groups: Groups,
    trained: Groups,
    *,
    seconds: Mapping[str, float],
    job: Mapping[str, float],
    staleness: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """All metrics of an epoch; `groups` are all groups, `trained` the submitted ones."""
    unseen = sum((t.metadata or {}).get("calls_without_logprobs", 0) for group in groups for t in group)
    rows = [row for record in records if record.left_out is None for row in record.rows]
    tokens = sum(record.completion_tokens for record in records if record.num_calls)
    metrics = {
        **_rewards(groups),
        **metrics_of_rollouts(records),
        **_drift([record for record in records if record.rows]),
        "drift/calls_without_logprobs": float(unseen),
        **staleness,
        "train/submitted_groups": float(len(trained)),
        "train/submitted_rollouts": float(sum(map(len, trained))),
        "train/submitted_rows": float(len(rows)),
        "train/submitted_tokens": float(sum(row.num_sampled for row in rows)),
        **{f"time/{name}": value for name, value in seconds.items()},
    }
    if seconds.get("rollout") and tokens:
        metrics["rollout/tokens_per_second"] = tokens / seconds["rollout"]
    return metrics | prefixed(job)


def prefixed(job: Mapping[str, float]) -> dict[str, float]:
    """The backend's metrics under our prefixes."""
    return {name if name.startswith(PREFIXES) else f"train/{name}": float(value) for name, value in job.items()}


def metrics_of_rollouts(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """The metrics that the rollouts alone decide; an epoch that failed before its update has these."""
    groups = by_example(records)
    known = {
        **_calls(records),
        **_seen_calls(records),
        **_answers(records),
        **_noise(groups),
        **_of_limits(groups),
        "reward/length_correlation": _length_correlation(groups),
        **({RELATIVE: 1.0} if any(record.relative for record in records) else {}),
        **{f"reward/beside_{name}": score for name, score in scores_beside(records).items()},
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def success_by_example(records: Iterable[RolloutRecord]) -> dict[str, float]:
    """Mean score of each example that has one."""
    return {own[0].example_id: mean([_score(record) for record in own]) for own in by_example(records)}


def by_example(records: Iterable[RolloutRecord]) -> list[Group]:
    """The rollouts that have a score, by example."""
    found: dict[str, list[RolloutRecord]] = {}
    for record in records:
        if record.reward is not None:
            found.setdefault(record.example_id, []).append(record)
    return list(found.values())


def scores_beside(records: Iterable[RolloutRecord]) -> dict[str, float]:
    """The mean of the scores by each evaluator that is not the reward."""
    scores: dict[str, list[float]] = {}
    for record in records:
        for name, score in record.scores_beside.items():
            scores.setdefault(name, []).append(score)
    return {name: fmean(own) for name, own in scores.items()}


def broken_by(records: Iterable[RolloutRecord]) -> dict[str, int]:
    """Calls that did not continue the tokens before them, by cause, the most frequent first."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.broken_by)
    return dict(counts.most_common())


def _rewards(groups: Groups) -> dict[str, float]:
    """Distribution of the rewards, over all rollouts and inside groups, where differences are the learning signal."""
    values = [t.reward for group in groups for t in group]
    if not values:
        return {}
    flat = [mean_reward(group) for group in groups if not has_signal(group)]
    return {
        "reward/mean": fmean(values),
        "reward/std": pstdev(values),
        "reward/spread_in_group": fmean(reward_spread(group) for group in groups),
        "reward/equal_groups": len(flat) / len(groups),
        "reward/equal_groups_lowest": sum(equal([reward, min(values)]) for reward in flat) / len(groups),
        "reward/equal_groups_highest": sum(equal([reward, max(values)]) for reward in flat) / len(groups),
    }


def _calls(records: Sequence[RolloutRecord]) -> dict[str, float | None]:
    """Calls, tokens and failures; a token count of 0 means that the server reports none."""
    known = [record for record in records if record.num_calls is not None]
    played = [record for record in known if record.num_calls]
    sampling = {"untrainable": [r.untrainable_calls for r in known], "untempered": [r.untempered_calls for r in known]}
    return {
        "rollout/failed": _mean(record.failed for record in known),
        "rollout/failed_calls": _mean(record.num_failed_calls for record in known),
        "rollout/calls": _mean(record.num_calls or 0 for record in played),
        "rollout/conversations": _mean(len(record.conversations) for record in played),
        "rollout/truncated": _mean(record.truncated for record in played),
        "rollout/prompt_tokens": _mean(record.prompt_tokens for record in played if record.prompt_tokens),
        "rollout/completion_tokens": _mean(record.completion_tokens for record in played if record.completion_tokens),
        **{
            f"drift/{name}_calls": sum(sum(calls.values()) for found in own for calls in found.values())
            for name, own in sampling.items()
            if known
        },
    }


def _seen_calls(records: Sequence[RolloutRecord]) -> dict[str, float | None]:
    """What was recorded of the calls, and which of them could not be used or failed."""
    ended = [record for record in records if not record.failed]
    seen = [record for record in ended if record.num_calls is not None]
    answered = {(record.example_id, record.output) for record in ended if record.num_calls}
    called = [record for record in ended if record.completion_tokens]
    unknown = not called or any(record.left_out is None and not record.rows for record in called)
    trained = sum(row.num_sampled for record in called for row in record.rows)
    results = [m for r in records if r.reward is not None for m in r.messages if m.get("role") == "tool"]
    errors = sum(_ERROR.match(str(message.get("content"))) is not None for message in results)
    lost = sum((Counter(record.lost_calls) for record in records), Counter[str]())
    if any("tool_calls" in message for record in records for message in record.messages):
        del lost["no_format"]  # the format that is tried for lack of another reads them
    return {
        "rollout/without_calls": _mean(r.num_calls == 0 for r in seen),
        "rollout/cached": _mean(r.num_calls == 0 and (r.example_id, r.output) in answered for r in seen),
        "rollout/trained_tokens": None if unknown else min(1.0, trained / sum(r.completion_tokens for r in called)),
        "rollout/tool_errors": errors / len(results) if errors else None,
        **{f"{LOST_CALLS}{cause}": count for cause, count in lost.items() if count},
    }


def _drift(usable: Sequence[RolloutRecord]) -> dict[str, float]:
    """How exactly the trained tokens are the sampled ones; 0 broken prefixes and 1 version are ideal."""
    if not usable:
        return {}
    versions = {version for r in usable for version in r.policy_versions}
    return {
        "drift/rows_per_rollout": fmean(len(r.rows) for r in usable),
        "drift/broken_prefixes": float(sum(r.broken_prefixes for r in usable)),
        **{f"drift/broken_by_{cause}": float(count) for cause, count in broken_by(usable).items()},
        **({"drift/policy_versions": float(len(versions))} if versions else {}),
    }


def _noise(groups: Sequence[Group]) -> dict[str, float | None]:
    """The variance of the scores inside examples, and the part of it between equal rollouts."""
    compared, squares = _squared([[_score(record) for record in own] for own in groups])
    # All that the evaluator could see of a rollout: its output, and who said what; ids of tool calls are random.
    repeats, of_repeats = _repeated(groups, lambda record: (record.output, tuple(map(_said, record.messages))))
    trained = [[record for record in own if record.rows] for own in groups]
    row_repeats, of_rows = _repeated(trained, lambda record: tuple(tuple(row.token_ids) for row in record.rows))
    return {
        "reward/compared": compared or None,
        "reward/example_variance": squares / compared if compared else None,
        "reward/repeats": repeats if compared else None,
        "reward/repeat_variance": of_repeats / repeats if repeats else None,
        "reward/row_repeats": row_repeats if any(len(own) > 1 for own in trained) else None,
        "reward/row_repeat_variance": of_rows / row_repeats if row_repeats else None,
    }


def _repeated(groups: Sequence[Group], key: Callable[[RolloutRecord], Hashable]) -> tuple[int, float]:
    """How many rollouts repeat another one of their example, and how their scores differ."""
    alike: dict[Hashable, list[float]] = {}
    for number, own in enumerate(groups):
        for record in own:
            alike.setdefault((number, key(record)), []).append(_score(record))
    return _squared(list(alike.values()))


def _squared(scores: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Degrees of freedom, and the sum of squared differences from each mean; 0 where they differ by rounding only."""
    squares = (0.0 if equal(own) else sum(each**2 for each in _centred(own)) for own in scores)
    return sum(len(own) - 1 for own in scores if own), sum(squares)


def _of_limits(groups: Sequence[Group]) -> dict[str, float | None]:
    """Share of the truncated rollouts that have the lowest score of all, and share of the others."""
    scored = [record for own in groups for record in own]
    lowest = min(map(_score, scored), default=0.0)
    cut, whole = ([equal([_score(r), lowest]) for r in scored if r.truncated is each] for each in (True, False))
    return {"reward/truncated_lowest": _mean(cut), "reward/whole_lowest": _mean(whole) if cut else None}


def _length_correlation(groups: Sequence[Group]) -> float | None:
    """Correlation of score and sampled tokens.

    It is among rollouts with equally many calls, because an agent that uses its tools is often both longer and better.
    """
    xs, ys = list[float](), list[float]()
    for own in groups:
        for calls in {record.num_calls for record in own if record.num_calls is not None}:
            alike = [record for record in own if record.num_calls == calls]
            xs += _centred([float(record.completion_tokens) for record in alike])
            ys += _centred([_score(record) for record in alike])
    spread = sqrt(sum(x * x for x in xs) * sum(y * y for y in ys))
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / spread if spread > 0 else None


def _answers(records: Sequence[RolloutRecord]) -> dict[str, float | None]:
    common = commonest_answer(records)
    return {} if common is None else {SAME_ANSWER: common.share, SAME_SCORE: common.score}


def commonest_answer(records: Iterable[RolloutRecord]) -> CommonAnswer | None:
    """What the model said most often in scored rollouts; None with few prompts, or where its answers are not known."""
    said, prompts = list[tuple[str, float]](), set[Hashable]()
    for record in records:
        if record.reward is not None and not record.failed and record.num_calls != 0:
            asked = tuple(_said(message) for message in record.messages if message.get("role") == "user")
            prompts.add(asked or record.example_id)
            said.append((_answer(record), record.reward))
    return commonest_of(said) if len(prompts) >= FEWEST_PROMPTS else None


def commonest_of(answers: Iterable[tuple[str, float | None]]) -> CommonAnswer | None:
    """The most frequent one of answers that each have a score; None without any."""
    scores: dict[str, list[float | None]] = {}
    for answer, score in answers:
        scores.setdefault(answer, []).append(score)
    if not scores:
        return None
    text, own = max(scores.items(), key=lambda each: len(each[1]))
    share = len(own) / sum(map(len, scores.values()))
    known = _mean(score for score in own if score is not None)
    return CommonAnswer(text=without_surrogates(text[:BEGINNING]), share=share, score=known)


def _answer(record: RolloutRecord) -> str:
    """All that the model said in a rollout, and the beginning of what was cut off; else the workflow's output."""
    answers = [own.messages[each.message] for own in record.conversations for each in own.answers]
    parts = [part for message in answers for part in (message.get("content"), *_said(message)[2:]) if part]
    text = "\n".join(map(str, parts)) or record.output or ""
    return text.strip()[: BEGINNING if record.truncated else None]


def _said(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls") or ()
    functions = [str(call.get("function")) for call in calls if isinstance(call, Mapping)]
    return str(message.get("role")), str(message.get("content")), *functions


def _score(record: RolloutRecord) -> float:
    assert record.reward is not None, "rollouts without a score are left out before"
    return record.reward


def _mean(values: Iterable[float]) -> float | None:
    """The mean; None of nothing."""
    known = list(values)
    return fmean(known) if known else None


def _centred(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    return [value - middle for value in values]
