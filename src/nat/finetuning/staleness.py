"""How many updates old the weights are that sampled an answer, and which rollouts are too old to train on. Pure."""

from collections.abc import Sequence
from statistics import fmean

from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.metrics import STALE_ROWS
from nat.finetuning.trajectories.groups import rollout_key
from nat.runs.rollouts import LeftOutCause, RolloutRecord


class PolicyVersions:
    """The versions of a run's weights, as jobs and answers name them, from the first to the current one.

    An update that changed nothing leaves its version; so does a backend that names none.
    """

    def __init__(self) -> None:
        self._age: dict[str, int] = {}
        """Updates since the version was current; the current version has 0."""

    def begin_with(self, records: Sequence[RolloutRecord]) -> None:
        """Take the version before training from rollouts that were played before any update."""
        for record in records:
            for version in record.policy_versions:
                self._age.setdefault(version, 0)

    def updated(self, version: str | None) -> None:
        """Add the version after an update; None if the backend does not name it."""
        if version is not None and self._age.get(version) != 0:
            self._age = {known: age + 1 for known, age in self._age.items()} | {version: 0}

    def staleness(self, version: str) -> int | None:
        """Updates between these weights and the current ones; None if the version is not known."""
        return self._age.get(version)

    def oldest(self, record: RolloutRecord) -> int:
        """The staleness of the rollout's oldest answer; 0 if no version of them is known."""
        return max((self._age.get(version, 0) for version in record.policy_versions), default=0)

    def metrics(self, records: Sequence[RolloutRecord]) -> dict[str, float]:
        """Mean staleness of the answers, and share of stale rows; nothing if no version is known."""
        usable = [record for record in records if record.rows and record.left_out is None]
        ages = [
            self._age[version]
            for record in usable
            for version, count in record.policy_versions.items()
            if version in self._age
            for _ in range(count)
        ]
        if not ages:
            return {}
        stale = [
            any(self._age.get(span.policy_version or "", 0) > 0 for span in row.spans)
            for record in usable
            for row in record.rows
        ]
        return {"drift/staleness": fmean(ages), STALE_ROWS: fmean(stale)}


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
