"""What the routes need of the models behind them; `ArtModels` is the real thing, tests have a fake."""

from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Protocol

from nat.art.server.batch import ArtBatch
from nat.art.wire import ArtModel
from nat.backend.model import LoadedModel
from nat.wire.training import JobState, TrainingConfig


class RunningCall(Protocol):
    """A training call that has begun; it goes on whether or not somebody listens."""

    @property
    def job_id(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, float]:
        """What the batch was made of."""
        ...

    @property
    def config(self) -> TrainingConfig: ...

    def __aiter__(self) -> AsyncIterator[dict[str, float]]:
        """Metrics of each optimizer step, `num_gradient_steps` the same in each.

        Ends when the checkpoint is on disk and the new weights are served.

        Raises:
            TrainingFailed: the weights are as before.

        """
        ...

    def cancel(self) -> None:
        """Stop at the next micro-batch; nothing happens if it has ended."""
        ...


class Models(Protocol):
    """What clients registered; only `prepare` waits for the model thread. Bad names are a ValueError everywhere."""

    @property
    def base(self) -> LoadedModel:
        """What all of them are trained on: its tokenizer and limits."""
        ...

    def register(self, model: ArtModel) -> None: ...

    async def prepare(self, model: ArtModel) -> None:
        """Make or restore its weights and serve them; cheap the second time."""
        ...

    def step(self, model: ArtModel) -> int:
        """The newest checkpoint on disk, 0 if there is none."""
        ...

    def steps(self, model: ArtModel) -> list[int]:
        """All checkpoints on disk, oldest first."""
        ...

    def folder(self, model: ArtModel) -> Path:
        """Where its checkpoints are, and its history."""
        ...

    def train(self, model: ArtModel, batch: ArtBatch) -> RunningCall:
        """Begin a training call.

        Raises:
            ModelBusy: one runs already.
            ModelNotPrepared: there are no weights to train.

        """
        ...

    def job(self, job_id: str) -> JobState | None: ...

    async def delete(self, model: ArtModel, steps_to_keep: Collection[int]) -> list[int]:
        """Delete the other checkpoints, but never the newest; gives the steps that are gone."""
        ...

    async def remove(self, model: ArtModel) -> None:
        """Stop serving a model and delete all that it has on disk.

        Raises:
            ModelBusy: it is being trained.

        """
        ...
