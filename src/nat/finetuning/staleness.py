"""How many updates old the weights are that sampled an answer, and which rollouts are too old to train on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.metrics import STALE_ROWS
from nat.finetuning.trajectories.groups import rollout_key
from nat.runs.rollouts import LeftOutCause, RolloutRecord

SEPARATOR = ", "
"""Between the versions of several models."""


@dataclass(frozen=True)
class PolicyVersions:
    """The versions of a run's weights, as jobs and answers name them, from the first to the current one.

    An update that changed nothing leaves its version; so does a backend that names none.
    """

    ages: Mapping[str, int] = field(default_factory=dict)
    """Updates since the version was current; the current version has 0."""

    def beginning_with(self, records: Sequence[RolloutRecord]) -> "PolicyVersions":
        """With the version before training, of rollouts that were played before any update."""
        first = {version: 0 for record in records for version in record.policy_versions}
        return PolicyVersions(first | dict(self.ages))

    def updated(self, version: str | None) -> "PolicyVersions":
        """With the version after an update; None if the backend does not name it.

        Several models name theirs as `a@1, b@4`, and each update makes the versions of its own model older.
        """
        ages, updated = self.ages, version.split(SEPARATOR) if version else []
        for new in updated:
            current = [known for known, age in ages.items() if age == 0]
            if new not in current:
                alone = len(updated) == 1 and len(current) < 2
                own = ages if alone else [known for known in ages if _model(known) == _model(new)] or ages
                ages = {known: age + (known in own) for known, age in ages.items()} | {new: 0}
        return PolicyVersions(ages)

    def staleness(self, version: str) -> int | None:
        """Updates between these weights and the current ones; None if the version is not known."""
        return self.ages.get(version)

    def oldest(self, record: RolloutRecord) -> int:
        """The staleness of the rollout's oldest answer; 0 if no version of them is known."""
        return max((self.ages.get(version, 0) for version in record.policy_versions), default=0)

    def metrics(self, records: Sequence[RolloutRecord]) -> dict[str, float]:
        """Mean and highest staleness of the answers, share of stale rows, and groups with a rollout that is too old.

        Nothing if no version is known.
        """
        usable = [record for record in records if record.rows and record.left_out is None]
        ages = [
            self.ages[version]
            for record in usable
            for version, count in record.policy_versions.items()
            if version in self.ages
            for _ in range(count)
        ]
        if not ages:
            return {}
        stale = [
            any(self.ages.get(span.policy_version or "", 0) > 0 for span in row.spans)
            for record in usable
            for row in record.rows
        ]
        dropped = {record.example_id for record in records if record.left_out is LeftOutCause.TOO_STALE}
        return {
            "drift/staleness": fmean(ages),
            "drift/staleness_max": float(max(ages)),
            STALE_ROWS: fmean(stale),
            "drift/dropped_groups": float(len(dropped)),
        }


def _model(version: str) -> str:
    return version.rpartition("@")[0]


def without_stale(
    records: Sequence[RolloutRecord], collected: TrajectoryCollection, versions: PolicyVersions, *, max_staleness: int
) -> tuple[list[RolloutRecord], TrajectoryCollection]:
    """Leave out the rollouts with an answer from weights of more than `max_staleness` updates ago."""
    old = {(record.example_id, record.generation) for record in records if versions.oldest(record) > max_staleness}
    if not old:
        return list(records), collected
    marked = [
        record.model_copy(update={"left_out": LeftOutCause.TOO_STALE})
        if record.left_out is None and (record.example_id, record.generation) in old
        else record
        for record in records
    ]
    groups = [
        [t for position, t in enumerate(group) if rollout_key(t, position) not in old]
        for group in collected.trajectories
    ]
    return marked, TrajectoryCollection(trajectories=[group for group in groups if group], run_id=collected.run_id)
