"""An open workflow and its limits: built once for any number of passes over the data."""

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Protocol

from nat.builder.builder import EvalBuilder
from nat.builder.context import RuntimeTypeEnum
from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy, ReplacedSampling
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.data_models.evaluate_runtime import Examples, Rollout
from nat.data_models.evaluator import EvalInputItem, EvalOutput
from nat.rollout.keeping import Keeper
from nat.rollout.ray_workers import Workers, check_installed, ray_workers
from nat.rollout.remote import ENDPOINT_TIMEOUT, RemoteWorkflow, open_remote
from nat.rollout.rollout import ITEM_TIMEOUT, held_out_seed, run_rollout, training_seed
from nat.rollout.server_watch import watched_servers
from nat.rollout.traces import Traces, opened_traces

logger = logging.getLogger(__name__)

Overrides = tuple[tuple[str, str], ...]
Phase = Literal["train", "validation", "eval"]
Choose = Callable[[Sequence[str]], Collection[str]]
"""Given the ids of a dataset's examples, those to play."""
ScoreItems = Callable[[list[EvalInputItem]], Awaitable[EvalOutput]]
"""Scores answers in one call of the evaluator; the result has one item per input, in their order."""


class PassComparison(Protocol):
    """Scores the answers of one pass together with others."""

    async def score(self, evaluator: str, items: list[EvalInputItem], score: ScoreItems) -> EvalOutput: ...


class WorkflowSession:
    """Runs items through one open workflow; all passes together share one limit of concurrent rollouts.

    The caller closes the builder. With `remote`, the remote workflow runs, and the builder needs none. With `training`,
    LLM calls request logprobs and token ids, and each rollout has a seed for its calls.
    """

    def __init__(
        self,
        config: Config,
        builder: EvalBuilder,
        *,
        config_file: object = None,
        override: Overrides = (),
        training: bool = False,
        runtime_type: RuntimeTypeEnum = RuntimeTypeEnum.EVALUATE,
        remote: RemoteWorkflow | Workers | None = None,
        replaced: ReplacedSampling | None = None,
        traces: Traces | None = None,
        examples: Mapping[str | None, Examples] | None = None,
        named_after: float = 30.0,
    ) -> None:
        """`config_file` is the path or the loaded config by which evaluations name the workflow.

        `replaced` overrides the sampling options of training rollouts; other rollouts keep the agent's. `traces` get
        all rollouts. A rollout that plays for `named_after` seconds is named, once, with its limit.
        """
        self.config = config
        self.builder = builder
        self.traces = traces or Traces()
        self.examples = dict(examples or {})
        """What was read, by the file that replaces the configured dataset, or None."""
        self.on_rollout: list[Callable[[Rollout], None]] = []
        """Called when a rollout has ended, now or in an earlier process."""
        self.on_pass: list[Callable[[int], None]] = []
        """Called with the number of rollouts when a pass begins."""
        self._endpoint = remote.endpoint if isinstance(remote, RemoteWorkflow) else None
        self._config_file = config_file.resolve() if isinstance(config_file, Path) else config_file
        self._override = override
        self._training = training
        self._replaced = replaced
        self._runtime_type = runtime_type
        self._slots = asyncio.Semaphore(config.eval.general.max_concurrency)
        deadline, option = config.eval.general.item_timeout, ITEM_TIMEOUT
        if isinstance(remote, RemoteWorkflow) and (deadline is None or remote.timeout <= deadline):
            deadline, option = remote.timeout, ENDPOINT_TIMEOUT
        limit = "no time limit is set" if deadline is None else f"rollouts are ended after {deadline:g} s"
        self._limit, self._named_after = f"{limit} ({option})", named_after
        self._playing: dict[object, tuple[str, float]] = {}
        """The example of each rollout under way, and when it began."""
        self._timer: threading.Timer | None = None
        """Waits for one to last; it has ended once one was named."""
        self._play: Callable[..., Awaitable[Rollout]]
        if isinstance(remote, Workers):
            self._play = remote.play
        else:
            workflow = remote or Workflow(builder.get_workflow())
            self._play = partial(
                run_rollout, workflow, deadline=deadline, deadline_option=option, runtime_type=runtime_type
            )

    @property
    def phase(self) -> Phase:
        """The purpose of rollouts in the current context."""
        if not self._training:
            return "eval"
        return "validation" if current_pass().held_out else "train"

    def serves(self, config_file: object, override: Overrides, endpoint: str | None = None) -> bool:
        """True if this session runs the workflow of that file under those overrides, at that URL.

        A loaded config is served by the session of this very object, since a copy may be meant to differ. No URL
        matches a session at any URL.
        """
        if override not in ((), self._override) or endpoint not in (None, self._endpoint):
            return False
        if isinstance(config_file, Path):
            return config_file.resolve() == self._config_file
        return config_file is self._config_file or config_file is self.config

    def begin_pass(self) -> int:
        """The number of a training pass, counted from 0; other passes have the number 0."""
        return next(current_pass().numbers) if self.phase == "train" else 0

    def seed_of(self, item_id: str, pass_index: int) -> int:
        """The seed of an item's rollout: a new one in each training pass, the same one in all other passes."""
        seed = self.config.finetuning.seed
        return training_seed(seed, pass_index, item_id) if self.phase == "train" else held_out_seed(seed, item_id)

    async def run(self, item: EvalInputItem, *, seed: int | None, generation: int = 0) -> Rollout:
        """Run one rollout as soon as there is a free slot; its failure is part of the record."""
        policy = CapturePolicy()
        if self._training:
            replaced = self._replaced if self.phase == "train" else None
            policy = CapturePolicy(logprobs=True, token_ids=True, seed=seed, replaced=replaced)
        async with self._slots:
            place = object()
            self._playing[place] = str(item.id), monotonic()
            if self._timer is None:
                self._look_in(self._named_after)
            try:
                rollout = await self._play(item, seed=seed, generation=generation, policy=policy)
            finally:
                del self._playing[place]
                if not self._playing and self._timer is not None and self._timer.is_alive():
                    self._timer.cancel()
                    self._timer = None
        self.traces.ended(rollout, item.input_obj, is_judged=self._runtime_type is RuntimeTypeEnum.EVALUATE)
        self.ended(rollout)
        return rollout

    def ended(self, rollout: Rollout) -> None:
        for listen in self.on_rollout:
            listen(rollout)

    def _look_in(self, seconds: float) -> None:
        """Look in so many seconds, in a thread, since an agent that never ends may block the event loop."""
        self._timer = threading.Timer(seconds, self._name_long)
        self._timer.daemon = True
        self._timer.start()

    def _name_long(self) -> None:
        """Name the oldest rollout under way if it has played for long; else look again when it has."""
        for example, began in list(self._playing.values())[:1]:
            if (left := began + self._named_after - monotonic()) > 0:
                self._look_in(left)
            else:
                logger.warning("example %s has been playing for %.0f s; %s", example, self._named_after, self._limit)


@dataclass(frozen=True)
class Pass:
    """How evaluations that begin in this context play; the guide's trajectory builder starts them without arguments."""

    sessions: tuple[WorkflowSession, ...] = ()
    """The open workflows, the innermost first."""
    held_out: bool = False
    """A validation, whose seeds are the same each time."""
    choose: Choose | None = None
    """Chooses the examples to play; None for all."""
    comparison: PassComparison | None = None
    """Scores its answers together with others."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers of the training passes from here on, which decide their seeds."""
    keeper: Keeper | None = None
    """Keeps what its passes finish."""
    run: object = None
    """The finetuning run, which plug-ins get by `nat.finetuning.run_log`."""


_USUAL = Pass()
_pass: ContextVar[Pass] = ContextVar("nat_pass", default=_USUAL)


current_pass = _pass.get
"""How an evaluation that begins now plays."""


@contextmanager
def in_pass(**changes: Any) -> Iterator[None]:
    """Change fields of the current pass until the block ends, also for tasks that begin inside."""
    token = _pass.set(replace(_pass.get(), **changes))
    try:
        yield
    finally:
        with suppress(ValueError):  # it ends in another context: of a trainer that nobody cleaned up
            _pass.reset(token)


@contextmanager
def using_session(session: WorkflowSession) -> Iterator[WorkflowSession]:
    """Let evaluations inside the block use this session if it serves their config; blocks can be nested."""
    with in_pass(sessions=(session, *current_pass().sessions), numbers=itertools.count()):
        yield session


def current_session(
    config_file: object, override: Overrides = (), endpoint: str | None = None
) -> WorkflowSession | None:
    """The innermost session in use that serves this config, None if there is none."""
    endpoint = None if endpoint is None else endpoint.rstrip("/")
    serving = (each for each in current_pass().sessions if each.serves(config_file, override, endpoint))
    return next(serving, None)


@asynccontextmanager
async def opened_session(
    config_file: object,
    override: Overrides = (),
    *,
    runtime_type: RuntimeTypeEnum = RuntimeTypeEnum.EVALUATE,
    endpoint: str | None = None,
    endpoint_timeout: float = 300,
) -> AsyncIterator[WorkflowSession]:
    """Open a new session: load the YAML unless given a loaded config, build the workflow, and close it at the end.

    With `endpoint`, the workflow at that URL is used, and none is built.
    """
    config = config_file if isinstance(config_file, Config) else load_config(Path(str(config_file)), override)
    config = config.located()
    async with AsyncExitStack() as stack:
        tracing = opened_traces(config.general.telemetry.tracing, workflow=config.workflow.type)
        traces = await stack.enter_async_context(tracing)
        remote: RemoteWorkflow | Workers | None = None
        if endpoint is not None:
            opening = open_remote(endpoint, trains=False, rollout_timeout=endpoint_timeout)
            remote = await stack.enter_async_context(opening)
        rollouts = config.eval.general.rollouts if endpoint is None else None
        check_installed(rollouts)
        here = endpoint is None and rollouts is None
        builder = await stack.enter_async_context(WorkflowBuilder.from_config(config, workflow=here))
        await builder.probe_llms()
        if rollouts is not None:
            remote = await stack.enter_async_context(ray_workers(rollouts, config, builder))
        session = WorkflowSession(
            config,
            builder,
            config_file=config_file,
            override=override,
            runtime_type=runtime_type,
            remote=remote,
            traces=traces,
        )
        waits = runtime_type is RuntimeTypeEnum.EVALUATE
        await stack.enter_async_context(watched_servers(builder, waits=waits))
        yield session
