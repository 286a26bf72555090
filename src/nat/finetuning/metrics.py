"""The metrics of an epoch, from its records; pure.

Names carry the prefixes reward/ rollout/ drift/ train/ time/. What the backend reports of its job comes in
under train/ unless it has one of these prefixes already. What is not known is not there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev

from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory
from nat.finetuning import rewards
from nat.runs.records import RolloutRecord

PREFIXES = ("train/", "rollout/", "reward/", "val/", "time/", "drift/", "cost/")
BROKEN_BY = "drift/broken_by_"
"""Before a cause: how many calls did not continue the tokens before them because of it."""

Groups = Sequence[Sequence[Trajectory]]


def epoch_metrics(
    records: Sequence[RolloutRecord],
    groups: Groups,
    trained: Groups,
    *,
    seconds: Mapping[str, float],
    job: Mapping[str, float],
) -> dict[str, float]:
    """Everything but the fields of the epoch's record; `groups` are all, `trained` those that were submitted."""
    played = [record for record in records if record.num_calls]
    usable = [record for record in records if record.rows]
    metrics = reward_metrics(groups) | rollout_metrics(played) | drift_metrics(usable, groups)
    metrics |= failure_metrics(records) | sampling_metrics(records)
    metrics |= _batch(records, trained)
    metrics |= {f"time/{name}": value for name, value in seconds.items()}
    if played and seconds.get("rollout"):
        metrics["rollout/tokens_per_second"] = sum(r.completion_tokens for r in played) / seconds["rollout"]
    return metrics | prefixed(job)


def reward_metrics(groups: Groups) -> dict[str, float]:
    """Distribution of the rewards, and how much of it lies inside groups, where it teaches."""
    values = [t.reward for group in groups for t in group]
    if not values:
        return {}
    low, high = min(values), max(values)
    flat = [group[0].reward for group in groups if rewards.spread(group) == 0]
    top = [_said(t) for group in groups for t in group if t.reward == high and high > low]
    metrics = {
        "reward/mean": fmean(values),
        "reward/std": pstdev(values),
        "reward/spread_in_group": fmean(rewards.spread(group) for group in groups),
        "reward/equal_groups": len(flat) / len(groups),
        "reward/equal_groups_lowest": sum(reward == low for reward in flat) / len(groups),
        "reward/equal_groups_highest": sum(reward == high for reward in flat) / len(groups),
    }
    return metrics | ({"reward/top_duplicates": 1 - len(set(top)) / len(top)} if top else {})


def failure_metrics(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """What went wrong, over all rollouts: the share that failed, and the attempts at a call that brought no answer."""
    if not records:
        return {}
    return {
        "rollout/failed": _share(r.left_out is not None and r.left_out.failure for r in records),
        "rollout/failed_calls": fmean(r.num_failed_calls for r in records),
    }


def rollout_metrics(played: Sequence[RolloutRecord]) -> dict[str, float]:
    """Lengths per rollout, over those that called a model."""
    if not played:
        return {}
    return {
        "rollout/calls": fmean(r.num_calls for r in played),
        "rollout/conversations": fmean(len(r.conversations) for r in played),
        "rollout/prompt_tokens": fmean(r.prompt_tokens for r in played),
        "rollout/completion_tokens": fmean(r.completion_tokens for r in played),
        "rollout/truncated": _share(r.truncated for r in played),
    }


def drift_metrics(usable: Sequence[RolloutRecord], groups: Groups) -> dict[str, float]:
    """How exactly that which is trained on is that which was sampled; 0 broken, 0 dropped and 1 version are ideal."""
    metadata = [t.metadata or {} for group in groups for t in group]
    metrics = {"drift/calls_without_logprobs": float(sum(m.get("calls_without_logprobs", 0) for m in metadata))}
    versions = {r.policy_version for r in usable if r.policy_version is not None}
    if usable:
        metrics["drift/rows_per_rollout"] = fmean(len(r.rows) for r in usable)
        metrics["drift/broken_prefixes"] = float(sum(r.broken_prefixes for r in usable))
        causes = sum((Counter(r.broken_by) for r in usable), Counter[str]())
        metrics |= {f"{BROKEN_BY}{cause}": float(count) for cause, count in sorted(causes.items())}
    return metrics | ({"drift/policy_versions": float(len(versions))} if versions else {})


def sampling_metrics(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """Calls left out for how they were sampled, and calls trained at 1 that were sampled at another temperature."""
    counts = {"drift/bent_calls": [r.bent_calls for r in records], "drift/raw_calls": [r.raw_calls for r in records]}
    return {
        name: float(sum(sum(calls.values()) for found in own for calls in found.values()))
        for name, own in counts.items()
    }


def prefixed(job: Mapping[str, float]) -> dict[str, float]:
    """The backend's metrics under our prefixes."""
    return {name if name.startswith(PREFIXES) else f"train/{name}": float(value) for name, value in job.items()}


def _batch(records: Sequence[RolloutRecord], trained: Groups) -> dict[str, float]:
    """The effective batch, in groups, rollouts, rows and sampled tokens."""
    rows = [row for r in records if r.left_out is None for row in r.rows]
    return {
        "train/groups": float(len(trained)),
        "train/rollouts": float(sum(map(len, trained))),
        "train/rows": float(len(rows)),
        "train/tokens": float(sum(row.num_sampled for row in rows)),
    }


def _said(trajectory: Trajectory) -> tuple[str, ...]:
    """What the model said; equal for rollouts that are copies of each other."""
    return tuple(
        item.content if isinstance(item, EpisodeItem) else item.chosen_response
        for item in trajectory.episode
        if not isinstance(item, EpisodeItem) or item.role is EpisodeItemRole.ASSISTANT
    )


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0
