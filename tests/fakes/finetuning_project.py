"""A finetuning project with the generic builder and trainer, a small agent, and an adapter that records its jobs.

async with OpenAIServer(script) as server:
    project = FinetuningProject(tmp_path, server)
    with project.registered():
        result = await project.run()
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fakes.openai_server import OpenAIServer, Say
from nat.builder.function_info import FunctionInfo
from nat.builder.llm import LLMProviderInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.finetuning import (
    FinetuneRunConfig,
    TrainerAdapterConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.data_models.function import FunctionBaseConfig
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.progress import RunProgress
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import (
    register_function,
    register_llm_provider,
    register_trainer,
    register_trainer_adapter,
    register_trajectory_builder,
)
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import Memory

Ask = Callable[..., Awaitable[str]]
"""Sends one user message to the model (or to another `llm`), with extra request fields; gives the answer."""
Agent = Callable[[str, Ask], Awaitable[str]]


class Coin:
    """A model that is right every second time, so that rewards in a group of two differ."""

    def __init__(self) -> None:
        self.tossed: dict[str, int] = {}

    def __call__(self, request) -> Say:
        count = self.tossed[request.last_text] = self.tossed.get(request.last_text, -1) + 1
        return Say("right" if count % 2 else "wrong")


class AgentConfig(FunctionBaseConfig, name="test_agent"):
    llm: LLMRef = LLMRef("student")


class BuilderConfig(EvalTrajectoryBuilderConfig, name="test_builder"):
    pass


class AdapterConfig(TrainerAdapterConfig, name="test_adapter"):
    llm: LLMRef | None = None


class MortalConfig(OpenAIModelConfig, name="mortal_openai"):
    pass


class MortalProvider(LLMProviderInfo):
    """A provider of a server that the harness started; with an error, the server has died."""

    error: Exception | None = None

    def check(self) -> None:
        if self.error is not None:
            raise self.error


class EpochTrainerConfig(TrainerConfig, name="test_trainer"):
    pass


class RememberingAdapter(TrainerAdapter):
    """An adapter of a group-relative algorithm that completes every job at once, unless `outcomes` says how it ends."""

    drops_equal_groups = True

    def __init__(self, config: AdapterConfig) -> None:
        super().__init__(config)
        self.submitted: list[TrajectoryCollection] = []
        self.outcomes: Sequence[dict[str, Any]] = ()
        self.healthy = True
        self.exported: Path | None = None
        self.forecasts: list[ForecastRequest] = []
        self.forecasted: TrainingForecast | None = None
        """What `forecast` answers."""

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        self.forecasts.append(request)
        return self.forecasted

    async def is_healthy(self) -> bool:
        return self.healthy

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        self.submitted.append(trajectories)
        job = len(self.submitted) - 1
        return TrainingJobRef(run_id=trajectories.run_id, backend="memory", metadata={"job": job})

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        job = (ref.metadata or {})["job"]
        outcome = self.outcomes[job] if job < len(self.outcomes) else {}
        fields = {"status": TrainingStatusEnum.COMPLETED, "progress": 100.0, **outcome}
        return TrainingJobStatus(run_id=ref.run_id, backend=ref.backend, **fields)

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        return await self.status(ref)

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        pass

    async def export_model(self, name: str) -> Path | None:
        return self.exported


class ClumsyTrainer(EpochTrainer):
    """The generic trainer with a cleanup that may fail."""

    def __init__(self, config: EpochTrainerConfig, cleanup_error: Exception | None) -> None:
        super().__init__(config)
        self._cleanup_error = cleanup_error

    async def cleanup(self) -> None:
        await super().cleanup()
        if self._cleanup_error is not None:
            raise self._cleanup_error


class ForgetfulBuilder(EvalTrajectoryBuilder):
    """A builder that ignores rewards of single steps."""

    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        collected = await super().finalize(run_id, meta)
        for trajectory in (t for group in collected.trajectories for t in group):
            trajectory.shaped_rewards = None
        return collected


def forecast_with(**changes: Any) -> TrainingForecast:
    """All weights take 8 GB, adapters 2; 9 GB are free."""
    ways = {"all weights, float32": 8 * 10**9, "LoRA, rank 16, float32": 2 * 10**9}
    known = TrainingForecast(
        device="cpu",
        dtype="float32",
        num_parameters=10**9,
        learning_rate=1e-5,
        optimizer_steps=1,
        row_tokens=512,
        chats=4,
        memory=[Memory(title=title, parts={"weights": size}, total=size) for title, size in ways.items()],
        available=9 * 10**9,
        place="trains on cpu; samples on cpu",
    )
    return known.model_copy(update=changes)


async def answer_at_once(question: str, ask: Ask) -> str:
    """An agent that makes one call."""
    return await ask(question)


async def blank_plot(run_dir: Path) -> str | None:
    """Write an empty plot file, which saves a process and a second per run."""
    (run_dir / PLOT_NAME).write_bytes(b"\x89PNG")
    return None


async def blank_plot_process(_module: str, run_dir: str) -> tuple[int, str]:
    """Take the place of the process that `draw_run` starts."""
    await blank_plot(Path(run_dir))
    return 0, ""


class FinetuningProject:
    """Four training and eight held-out examples with two generations; change `config` before use."""

    def __init__(self, folder: Path, server: OpenAIServer, agent: Agent = answer_at_once) -> None:
        self.folder = folder
        self.server = server
        self.agent = agent
        self.built = 0
        self.closed = 0
        self.adapter = RememberingAdapter(AdapterConfig())
        self.cleanup_error: Exception | None = None
        self.trainer_type: type[ClumsyTrainer] = ClumsyTrainer
        self.server_error: Exception | None = None
        self.providers: list[MortalProvider] = []
        """Those that were built."""
        self.forget_shaped_rewards = False
        self.clients: Sequence[str] = ()
        """The LLMs whose clients the agent opens; all of them if empty."""
        self.output_dir = folder / "output"
        self.dataset = self.write_rows("train.json", 4)
        self.held_out = self.write_rows("val.json", 8, question="held-out ")
        self.config: dict[str, Any] = {
            "llms": {
                "student": {
                    "_type": "mortal_openai",
                    "model_name": "tiny",
                    "base_url": server.base_url,
                    "api_key": "k",
                    "max_retries": 0,
                }
            },
            "workflow": {"_type": "test_agent"},
            "eval": {
                "general": {
                    "max_concurrency": 4,
                    "outage_timeout": 0,
                    "dataset": {"_type": "json", "file_path": str(self.dataset)},
                },
                "evaluators": {"match": {"_type": "exact_match"}},
            },
            "trajectory_builders": {"builder": {"_type": "test_builder", "num_generations": 2}},
            "trainer_adapters": {"adapter": {"_type": "test_adapter"}},
            "trainers": {"trainer": {"_type": "test_trainer"}},
            "finetuning": {
                "enabled": True,
                "trainer": "trainer",
                "trajectory_builder": "builder",
                "trainer_adapter": "adapter",
                "reward_function": {"name": "match"},
                "num_epochs": 2,
                "output_dir": str(self.output_dir),
            },
        }

    @property
    def finetuning(self) -> dict[str, Any]:
        return self.config["finetuning"]

    def write_rows(self, name: str, count: int, *, question: str = "q", **columns: Any) -> Path:
        path, answer = self.folder / name, {"answer": "right"}
        rows = [{"id": f"{i:03}", "question": f"{question}{i}", **(columns or answer)} for i in range(count)]
        path.write_text(json.dumps(rows))
        return path

    def given(self, **fields: Any) -> FinetuneRunConfig:
        path = self.folder / "config.yml"
        path.write_text(yaml.safe_dump(self.config))
        return FinetuneRunConfig(config_file=path, **fields)

    async def run(self, progress: RunProgress | None = None, **fields: Any) -> RunResult:
        return await self.run_given(self.given(**fields), progress)

    async def run_given(self, given: FinetuneRunConfig, progress: RunProgress | None = None) -> RunResult:
        return await run_finetuning(given, progress=progress, plotter=blank_plot)

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        with Journal.open(self.output_dir / "latest", read_only=True) as journal:
            yield journal

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Register the parts until the block ends."""
        with pushed_catalog():
            register_llm_provider(config_type=MortalConfig)(self._build_llm)
            register_function(config_type=AgentConfig)(self._build_agent)
            register_trajectory_builder(config_type=BuilderConfig)(self._build_builder)
            register_trainer_adapter(config_type=AdapterConfig)(self._build_adapter)
            register_trainer(config_type=EpochTrainerConfig)(self._build_trainer)
            yield

    async def _build_llm(self, config, builder):
        self.providers.append(MortalProvider(config=config))
        self.providers[-1].error = self.server_error
        yield self.providers[-1]

    async def _build_agent(self, config, builder):
        self.built += 1
        clients = {
            name: await builder.get_llm(name, wrapper_type="openai") for name in self.clients or self.config["llms"]
        }

        async def ask(text: str, llm: str = config.llm, **fields: Any) -> str:
            client = clients[llm]
            messages = [{"role": "user", "content": text}]
            reply = await client.chat.completions.create(model=client.model_name, messages=messages, **fields)
            return reply.choices[0].message.content

        async def run(question: str) -> str:
            return await self.agent(question, ask)

        try:
            yield FunctionInfo.from_fn(run, description="an agent")
        finally:
            self.closed += 1

    async def _build_trainer(self, config, builder):
        yield self.trainer_type(config, self.cleanup_error)

    async def _build_adapter(self, config, builder):
        yield self.adapter

    async def _build_builder(self, config, builder):
        yield ForgetfulBuilder(config) if self.forget_shaped_rewards else EvalTrajectoryBuilder(config)
