"""ART's models without a language model: training is scripted, checkpoints are numbers."""

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path

from nat.art.server.batch import ArtBatch
from nat.art.server.store import key_of
from nat.art.wire import ArtModel, Serving
from nat.backend.model import LoadedModel
from nat.errors import ModelBusy, ModelNotPrepared
from nat.wire.training import JobState, JobStatus

STEPS = [{"loss": 0.5, "grad_norm": 1.0, "num_gradient_steps": 2.0}, {"loss": 0.25, "num_gradient_steps": 2.0}]


@dataclass
class FakeCall:
    """Yields `steps` once `go` is set, raises `error` if there is one, and ends with a new checkpoint."""

    models: "FakeArtModels"
    model: ArtModel
    batch: ArtBatch
    job_id: str
    steps: list[dict[str, float]]
    error: Exception | None
    go: asyncio.Event
    canceled: bool = False
    ended: bool = False

    @property
    def facts(self) -> dict[str, float]:
        return self.batch.facts

    async def __aiter__(self) -> AsyncIterator[dict[str, float]]:
        for step in self.steps:
            yield step
        await self.go.wait()
        self.ended = True
        if self.error is not None:
            raise self.error
        self.models.checkpoints[self.model.name].append(self.models.step(self.model) + 1)

    def cancel(self) -> None:
        if not self.ended:
            self.canceled = self.ended = True


@dataclass
class FakeArtModels:
    """Models as a test scripts them; `hold` blocks calls until `go` is set."""

    base: LoadedModel
    output_dir: Path
    steps_of_a_call: list[dict[str, float]] = field(default_factory=lambda: list(STEPS))
    error: Exception | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)
    registered: list[ArtModel] = field(default_factory=list)
    checkpoints: dict[str, list[int]] = field(default_factory=dict)
    calls: list[FakeCall] = field(default_factory=list)

    def register(self, model: ArtModel) -> None:
        self.folder(model)
        self.registered.append(model)

    async def prepare(self, model: ArtModel) -> None:
        self.folder(model)
        self.checkpoints.setdefault(model.name, [0])

    def serving(self, model: ArtModel) -> Serving:
        return Serving(base_model="tiny", notes=["Nothing of this is real."])

    def step(self, model: ArtModel) -> int:
        return max(self.steps(model), default=0)

    def steps(self, model: ArtModel) -> list[int]:
        self.folder(model)
        return list(self.checkpoints.get(model.name, []))

    def folder(self, model: ArtModel) -> Path:
        key_of(model)
        return self.output_dir / model.project / "models" / model.name

    def train(self, model: ArtModel, batch: ArtBatch) -> FakeCall:
        if model.name not in self.checkpoints:
            raise ModelNotPrepared(f"{model.name} has no weights", hint="prepare it first")
        if any(call.model.name == model.name and not call.ended for call in self.calls):
            raise ModelBusy(f"{model.name} is being trained", hint="wait for the call to end")
        job_id = f"job-{len(self.calls)}"
        call = FakeCall(self, model, batch, job_id, self.steps_of_a_call, self.error, self.go)
        self.calls.append(call)
        return call

    def job(self, job_id: str) -> JobState | None:
        for call in self.calls:
            if call.job_id == job_id:
                return JobState(id=job_id, status=JobStatus.COMPLETED if call.ended else JobStatus.RUNNING)
        return None

    async def delete(self, model: ArtModel, steps_to_keep: Collection[int]) -> list[int]:
        steps = self.steps(model)
        gone = [step for step in steps[:-1] if step not in steps_to_keep]
        self.checkpoints[model.name] = [step for step in steps if step not in gone]
        return gone

    async def remove(self, model: ArtModel) -> None:
        await asyncio.sleep(0)  # as the real ones wait for the thread of the models
        self.checkpoints.pop(model.name, None)
