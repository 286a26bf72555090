"""The epochs that guards and alarms look at, as many after a thousand epochs as after fifty. Pure."""

from collections import deque

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.alarms import ENTROPY_EPOCHS
from nat.runs.records import EpochRecord


class EpochWindow:
    """The first epochs, the last ones, and those with the lowest and the highest reward."""

    def __init__(self, config: GuardsConfig) -> None:
        self._num_first = config.collapse_epochs
        self._first: list[EpochRecord] = []
        last = max(ENTROPY_EPOCHS + 1, config.epochs_without_signal, 2 * config.collapse_epochs)
        self._last: deque[EpochRecord] = deque(maxlen=last)
        self._lowest: EpochRecord | None = None
        self._highest: EpochRecord | None = None

    def add(self, record: EpochRecord) -> None:
        """Add the newest epoch."""
        if len(self._first) < self._num_first:
            self._first.append(record)
        self._last.append(record)
        if self._lowest is None or record.min_reward < self._lowest.min_reward:
            self._lowest = record
        if self._highest is None or record.max_reward > self._highest.max_reward:
            self._highest = record

    @property
    def records(self) -> list[EpochRecord]:
        """In the order of the epochs, each once."""
        extremes = [record for record in (self._lowest, self._highest) if record is not None]
        found = {record.epoch: record for record in (*self._first, *extremes, *self._last)}
        return [found[epoch] for epoch in sorted(found)]
