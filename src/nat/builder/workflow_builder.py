"""Build the components of a configuration on first use: each once, on one exit stack.

A component that another one needs is opened before it and closed after it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from copy import copy
from functools import partialmethod
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from nat.builder.context import here, move
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function import Function, LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.llm import LLMProviderInfo
from nat.builder.workflow import Workflow
from nat.config.components import named_components, trained_llms
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import EmptyFunctionConfig, FunctionBaseConfig
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TracingConfig
from nat.errors import (
    ANY_FAILURE,
    NatError,
    WorkflowError,
    describe_error,
    did_you_mean,
    one_of,
    place_of,
)
from nat.registry.catalog import Catalog, current_catalog


class Component(NamedTuple):
    """Which component: its section of the YAML and its name there; as text its path, such as `llms.judge`."""

    group: ComponentGroup
    name: str

    def __str__(self) -> str:
        return "workflow" if self == WORKFLOW else f"{self.group}.{self.name}"


WORKFLOW = Component(ComponentGroup.FUNCTIONS, WORKFLOW_COMPONENT_NAME)


class WorkflowBuilder:
    """The components of one configuration; an async context manager that closes everything it opened.

    An unknown name raises WorkflowError.
    """

    def __init__(
        self,
        *,
        eval_general: EvalGeneralConfig | None = None,
        registry: Catalog | None = None,
        run_dir: Path | None = None,
    ) -> None:
        self._catalog = registry or current_catalog()
        self._eval_general = eval_general or EvalGeneralConfig()
        self._run_dir = run_dir
        self._stack = AsyncExitStack()
        self._configs: dict[Component, TypedBaseModel] = {}
        self._opened: dict[Component, Any] = {}
        self._locks: dict[Component, asyncio.Lock] = {}
        self._llms_in_use: set[str] = set()
        self._outer: WorkflowBuilder | None = None
        self._opening: tuple[Component, ...] = ()
        """What is being built with this copy of the builder, outermost first."""

    @staticmethod
    def current() -> "WorkflowBuilder":
        """The builder of the running workflow."""
        builder: WorkflowBuilder | None = here().builder
        if builder is None:
            raise WorkflowError("Builder not set in context", hint="call this inside `async with WorkflowBuilder…`")
        return builder

    @classmethod
    @asynccontextmanager
    async def from_config(
        cls, config: Config, run_dir: Path | None = None, *, workflow: bool = True
    ) -> "AsyncIterator[WorkflowBuilder]":
        """Open LLMs, functions, evaluators and the workflow; finetuning components are built on first use.

        Components may write files to `run_dir`, if it is given. With `workflow=False` the workflow runs in another
        process, and functions are built on first use.
        """
        async with cls(eval_general=config.eval.general, run_dir=run_dir) as builder:
            for group, name, component in named_components(config):
                builder._add(group, name, component)
            for name in config.llms:
                await builder.get_llm_provider(name)
            for name in config.functions if workflow else ():
                await builder.get_function(name)
            for name in config.eval.evaluators:
                await builder._open(ComponentGroup.EVALUATORS, name, EvaluatorInfo)
            if workflow and not isinstance(config.workflow, EmptyFunctionConfig):
                await builder.set_workflow(config.workflow)
            yield builder

    async def __aenter__(self) -> Self:
        self._outer = here().builder
        move(builder=self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything in reverse order.

        The error is not thrown into the build functions, so that their teardown after the `yield` runs. An error of a
        teardown becomes a note of the first error.
        """
        move(builder=self._outer)
        try:
            await self._stack.aclose()
        except ANY_FAILURE as failure:
            if error is None and str(failure) == "generator didn't stop":
                raise WorkflowError(
                    "a build function of the configuration's components yields more than once",
                    hint="`yield` the built object exactly once; the code after it is the teardown",
                ) from failure
            if error is None:
                raise
            error.add_note(f"and closing the components failed after that: {describe_error(failure)}")

    # ---- all components

    def _add(self, group: ComponentGroup, name: str, config: TypedBaseModel) -> None:
        component = Component(group, str(name))
        if component in self._configs:
            raise WorkflowError(f"'{name}' is already under {group}", hint="give one of the two another name")
        self._configs[component] = config

    def _config(self, group: ComponentGroup, name: str) -> Any:
        config = self._configs.get(Component(group, str(name)))
        if config is None:
            known = self._names(group)
            raise WorkflowError(f"'{name}' not found under {group}.{did_you_mean(name, known)} There: {one_of(known)}.")
        return config

    def _names(self, group: ComponentGroup) -> list[str]:
        return [each.name for each in self._configs if each.group == group]

    async def _open(self, group: ComponentGroup, name: str, wanted: type[Any] = object) -> Any:
        """The component of a name, the same object on every call; WorkflowError unless it has the wanted type.

        Components that need each other raise WorkflowError.
        """
        component, config = Component(group, str(name)), self._config(group, name)
        if component in self._opening and component not in self._opened:
            circle = (*self._opening[self._opening.index(component) :], component)
            raise WorkflowError(f"components need each other in a circle: {' → '.join(map(str, circle))}")
        async with self._locks.setdefault(component, asyncio.Lock()):
            if component not in self._opened:
                with self._building(component) as builder:
                    manager = self._catalog.component_of(group, config).build_fn(config, builder)
                    yielded = await self._enter(str(component), config, manager)
                if group is ComponentGroup.FUNCTIONS:
                    yielded = _as_function(yielded, config, component.name)
                if not isinstance(yielded, wanted):
                    named = "FunctionInfo, a Function or a callable" if wanted is Function else wanted.__name__
                    seen = f"its build function yielded {type(yielded).__name__}"
                    raise WorkflowError(f"{component}: {seen}; wanted: {named}")
                self._opened[component] = yielded
        return self._opened[component]

    @contextmanager
    def _building(self, component: Component) -> Iterator[Self]:
        """A copy of this builder for a build function, which knows what it builds; it is the current one meanwhile."""
        inner, outer = copy(self), here().builder
        inner._opening = (*self._opening, component)  # noqa: SLF001 - same class
        move(builder=inner)
        try:
            yield inner
        finally:
            move(builder=outer)

    async def _enter(self, path: str, config: TypedBaseModel, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a build function, which the stack closes; its failure names the component."""
        try:
            return await self._stack.enter_async_context(manager)
        except NatError:
            raise
        except ANY_FAILURE as error:
            what = f"{path} (_type: {config.static_type()})"
            if str(error) == "generator didn't yield":
                raise WorkflowError(
                    f"{what}: its build function ended before its `yield`", hint="`yield` the built object exactly once"
                ) from error
            raise WorkflowError(f"{what} could not be built: {describe_error(error)}{place_of(error)}") from error

    @property
    def run_dir(self) -> Path | None:
        """The folder of the current run, None if no files are kept."""
        return self._run_dir

    @property
    def llm_name(self) -> str | None:
        """The LLM's key in the YAML, for the build functions of LLM providers and clients; None for others."""
        innermost = self._opening[-1] if self._opening else WORKFLOW
        return innermost.name if innermost.group is ComponentGroup.LLMS else None

    @property
    def trained_llms(self) -> set[str]:
        """The keys of the LLMs that trainer adapters refer to and train."""
        group = ComponentGroup.TRAINER_ADAPTERS
        adapters = {each.name: config for each, config in self._configs.items() if each.group == group}
        return set[str]().union(*(trained_llms(adapters, name) for name in adapters))

    @property
    def llm_names(self) -> list[str]:
        """The keys of `llms`, in the order of the YAML."""
        return self._names(ComponentGroup.LLMS)

    # ---- functions

    async def add_function(self, name: str, config: FunctionBaseConfig) -> Function:
        self._add(ComponentGroup.FUNCTIONS, name, config)
        return await self.get_function(name)

    async def get_function(self, name: str) -> Function:
        function: Function = await self._open(ComponentGroup.FUNCTIONS, name, Function)
        return function

    async def get_functions(self, function_names: Sequence[str]) -> list[Function]:
        return [await self.get_function(name) for name in function_names]

    get_function_config = partialmethod(_config, ComponentGroup.FUNCTIONS)

    async def set_workflow(self, config: FunctionBaseConfig) -> Function:
        """Make a function the workflow; its name as a function is `<workflow>`."""
        self._add(ComponentGroup.FUNCTIONS, WORKFLOW_COMPONENT_NAME, config)
        return await self.get_function(WORKFLOW_COMPONENT_NAME)

    def get_workflow(self) -> Function:
        workflow: Function | None = self._opened.get(WORKFLOW)
        if workflow is None:
            raise WorkflowError("there is no workflow", hint="add the section `workflow` to the YAML")
        return workflow

    def get_workflow_config(self) -> FunctionBaseConfig:
        return self.get_workflow().config

    async def build(self, entry_function: str | None = None) -> Workflow:
        """A runner of single inputs, for the workflow or for the named function."""
        return Workflow(self.get_workflow() if entry_function is None else await self.get_function(entry_function))

    # ---- llms and tools

    async def add_llm(self, name: str, config: LLMBaseConfig) -> None:
        self._add(ComponentGroup.LLMS, name, config)
        await self.get_llm_provider(name)

    async def get_llm_provider(self, llm_name: str) -> LLMProviderInfo:
        provider: LLMProviderInfo = await self._open(ComponentGroup.LLMS, llm_name, LLMProviderInfo)
        return provider

    async def get_llm(self, llm_name: str, wrapper_type: str) -> Any:
        """A new client of a framework for an LLM; the builder closes it."""
        provider, llm = await self.get_llm_provider(llm_name), Component(ComponentGroup.LLMS, str(llm_name))
        self._llms_in_use.add(llm.name)
        client = self._catalog.llm_client(type(provider.config), str(wrapper_type))
        with self._building(llm) as builder:
            manager = client(provider.config, builder)
            return await self._enter(f"{llm} for {wrapper_type}", provider.config, manager)

    async def probe_llms(self) -> None:
        """Raise BackendUnreachable if no server listens at the address of an LLM that has clients."""
        for name in sorted(self._llms_in_use):
            await (await self.get_llm_provider(name)).probe(name)

    async def get_llms(self, llm_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_llm(name, wrapper_type) for name in llm_names]

    get_llm_config = partialmethod(_config, ComponentGroup.LLMS)

    async def get_tool(self, fn_name: str, wrapper_type: str) -> Any:
        """A function as a framework's tool object."""
        wrap = self._catalog.tool_wrappers.get(str(wrapper_type))
        return wrap(fn_name, await self.get_function(fn_name), self)

    async def get_tools(self, tool_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_tool(name, wrapper_type) for name in tool_names]

    async def get_all_tools(self, wrapper_type: str) -> list[Any]:
        names = [n for n in self._names(ComponentGroup.FUNCTIONS) if n != WORKFLOW_COMPONENT_NAME]
        return await self.get_tools(names, wrapper_type)

    # ---- evaluation

    async def get_eval_callbacks(self) -> list[Any]:
        group = ComponentGroup.EVAL_CALLBACKS
        configs = {name: self._config(group, name) for name in self._names(group)}
        return [await self._open(group, name) for name, each in configs.items() if not isinstance(each, TracingConfig)]

    async def add_evaluator(self, name: str, config: EvaluatorBaseConfig) -> None:
        self._add(ComponentGroup.EVALUATORS, name, config)
        await self._open(ComponentGroup.EVALUATORS, name, EvaluatorInfo)

    def get_evaluator(self, evaluator_name: str) -> EvaluatorInfo:
        self.get_evaluator_config(evaluator_name)
        evaluator: EvaluatorInfo | None = self._opened.get(Component(ComponentGroup.EVALUATORS, str(evaluator_name)))
        if evaluator is None:
            raise WorkflowError(f"the evaluator '{evaluator_name}' is not built yet", hint="await add_evaluator first")
        return evaluator

    get_evaluator_config = partialmethod(_config, ComponentGroup.EVALUATORS)

    def get_max_concurrency(self) -> int:
        return self._eval_general.max_concurrency

    @property
    def outage_timeout(self) -> float:
        """`eval.general.outage_timeout`, in seconds."""
        return self._eval_general.outage_timeout

    def get_output_dir(self) -> Path:
        return self._eval_general.report_dir

    # ---- finetuning

    async def _add_unbuilt(self, group: ComponentGroup, name: str, config: TypedBaseModel) -> None:
        self._add(group, name, config)

    async def _config_of(self, group: ComponentGroup, name: str) -> Any:
        return self._config(group, name)

    add_trajectory_builder = partialmethod(_add_unbuilt, ComponentGroup.TRAJECTORY_BUILDERS)
    get_trajectory_builder = partialmethod(_open, ComponentGroup.TRAJECTORY_BUILDERS)
    get_trajectory_builder_config = partialmethod(_config_of, ComponentGroup.TRAJECTORY_BUILDERS)
    add_trainer_adapter = partialmethod(_add_unbuilt, ComponentGroup.TRAINER_ADAPTERS)
    get_trainer_adapter = partialmethod(_open, ComponentGroup.TRAINER_ADAPTERS)
    get_trainer_adapter_config = partialmethod(_config_of, ComponentGroup.TRAINER_ADAPTERS)
    add_trainer = partialmethod(_add_unbuilt, ComponentGroup.TRAINERS)
    get_trainer_config = partialmethod(_config_of, ComponentGroup.TRAINERS)
    add_ttc_strategy = partialmethod(_add_unbuilt, ComponentGroup.TTC_STRATEGIES)

    async def get_trainer(self, trainer_name: str, trajectory_builder: Any, trainer_adapter: Any) -> Any:
        trainer = await self._open(ComponentGroup.TRAINERS, trainer_name)
        await trainer.bind_components(trajectory_builder, trainer_adapter)
        return trainer

    async def get_ttc_strategy(self, strategy_name: str, pipeline_type: Any, stage_type: Any) -> Any:
        """A strategy of this stage that supports this pipeline."""
        strategy = await self._open(ComponentGroup.TTC_STRATEGIES, strategy_name)
        if strategy.stage_type() != stage_type:
            raise WorkflowError(
                f"the strategy '{strategy_name}' is of the stage {strategy.stage_type()}; wanted: {stage_type}"
            )
        strategy.set_pipeline_type(pipeline_type)
        return strategy

    async def get_ttc_strategy_config(self, strategy_name: str, pipeline_type: Any, stage_type: Any) -> Any:
        await self.get_ttc_strategy(strategy_name, pipeline_type, stage_type)
        return self._config(ComponentGroup.TTC_STRATEGIES, strategy_name)


def _as_function(yielded: Any, config: FunctionBaseConfig, name: str) -> Any:
    """The function that a build function's object stands for; anything else is unchanged."""
    if isinstance(yielded, Function):
        yielded.instance_name = name
        return yielded
    info = FunctionInfo.from_fn(yielded) if callable(yielded) else yielded
    return LambdaFunction(config=config, info=info, instance_name=name) if isinstance(info, FunctionInfo) else yielded
