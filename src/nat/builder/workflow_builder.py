"""Build the components of a configuration on first use, and close them in reverse order."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nat.builder.components import Components, as_function
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function import Function
from nat.builder.llm import LLMProviderInfo
from nat.builder.workflow import Workflow
from nat.config.components import trained_llms
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import EmptyFunctionConfig, FunctionBaseConfig
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TracingConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import ANY_FAILURE, WorkflowError, describe_error
from nat.registry.catalog import Catalog, current_catalog

_current: ContextVar["WorkflowBuilder | None"] = ContextVar("nat_builder", default=None)


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
        self._stack = AsyncExitStack()
        self._components = Components(registry or current_catalog(), self._stack)
        self._eval_general = eval_general or EvalGeneralConfig()
        self._run_dir = run_dir
        self._outer: WorkflowBuilder | None = None
        self._llms_in_use: set[str] = set()
        self._llm_name: str | None = None

    @staticmethod
    def current() -> "WorkflowBuilder":
        """The builder of the running workflow."""
        if (builder := _current.get()) is None:
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
            builder._components.add_all(config)
            for name in config.llms:
                await builder.get_llm_provider(name)
            for name in config.functions if workflow else ():
                await builder.get_function(name)
            for name in config.eval.evaluators:
                await builder._components.instance(ComponentGroup.EVALUATORS, name, builder, EvaluatorInfo)
            if workflow and not isinstance(config.workflow, EmptyFunctionConfig):
                await builder.set_workflow(config.workflow)
            yield builder

    async def __aenter__(self) -> Self:
        self._outer = _current.get()
        _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything in reverse order.

        The error is not thrown into the build functions, so that their teardown after the `yield` runs. An error of a
        teardown becomes a note of the first error.
        """
        _current.set(self._outer)
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

    @property
    def run_dir(self) -> Path | None:
        """The folder of the current run, None if no files are kept."""
        return self._run_dir

    @property
    def llm_name(self) -> str | None:
        """The LLM's key in the YAML, for the build functions of LLM providers and clients; None for others."""
        return self._llm_name

    @property
    def trained_llms(self) -> set[str]:
        """The keys of the LLMs that trainer adapters refer to and train."""
        group = ComponentGroup.TRAINER_ADAPTERS
        adapters = {
            name: self._components.config(group, name, TypedBaseModel) for name in self._components.names(group)
        }
        return set[str]().union(*(trained_llms(adapters, name) for name in adapters))

    @property
    def llm_names(self) -> list[str]:
        """The keys of `llms`, in the order of the YAML."""
        return self._components.names(ComponentGroup.LLMS)

    # ---- functions

    async def add_function(self, name: str, config: FunctionBaseConfig) -> Function:
        self._components.add(ComponentGroup.FUNCTIONS, name, config)
        return await self.get_function(name)

    async def get_function(self, name: str) -> Function:
        config = self.get_function_config(name)
        path = "workflow" if name == WORKFLOW_COMPONENT_NAME else f"{ComponentGroup.FUNCTIONS}.{name}"

        async def build() -> Function:
            yielded = await self._components.build(ComponentGroup.FUNCTIONS, path, config, self)
            return as_function(yielded, path, str(name), config)

        function: Function = await self._components.once(path, build)
        return function

    async def get_functions(self, function_names: Sequence[str]) -> list[Function]:
        return [await self.get_function(name) for name in function_names]

    def get_function_config(self, name: str) -> FunctionBaseConfig:
        return self._components.config(ComponentGroup.FUNCTIONS, name, FunctionBaseConfig)

    async def set_workflow(self, config: FunctionBaseConfig) -> Function:
        """Make a function the workflow; its name as a function is `<workflow>`."""
        self._components.add(ComponentGroup.FUNCTIONS, WORKFLOW_COMPONENT_NAME, config)
        return await self.get_function(WORKFLOW_COMPONENT_NAME)

    def get_workflow(self) -> Function:
        workflow: Function | None = self._components.opened("workflow")
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
        self._components.add(ComponentGroup.LLMS, name, config)
        await self.get_llm_provider(name)

    async def get_llm_provider(self, llm_name: str) -> LLMProviderInfo:
        group, builder = ComponentGroup.LLMS, self._for_llm(llm_name)
        provider: LLMProviderInfo = await self._components.instance(group, llm_name, builder, LLMProviderInfo)
        return provider

    async def get_llm(self, llm_name: str, wrapper_type: str) -> Any:
        """A new client of a framework for an LLM; the builder closes it."""
        provider = await self.get_llm_provider(llm_name)
        self._llms_in_use.add(str(llm_name))
        client = self._components.catalog.llm_client(type(provider.config), str(wrapper_type))
        path = f"{ComponentGroup.LLMS}.{llm_name} for {wrapper_type}"
        manager = client(provider.config, self._for_llm(llm_name))
        return await self._components.enter(path, provider.config, manager)

    def _for_llm(self, name: str) -> Self:
        """A copy of this builder for the build functions of one LLM, with its `llm_name`."""
        view = copy(self)
        view._llm_name = str(name)  # noqa: SLF001 - same class
        return view

    async def probe_llms(self) -> None:
        """Raise BackendUnreachable if no server listens at the address of an LLM that has clients."""
        for name in sorted(self._llms_in_use):
            await (await self.get_llm_provider(name)).probe(name)

    async def get_llms(self, llm_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_llm(name, wrapper_type) for name in llm_names]

    def get_llm_config(self, llm_name: str) -> LLMBaseConfig:
        return self._components.config(ComponentGroup.LLMS, llm_name, LLMBaseConfig)

    async def get_tool(self, fn_name: str, wrapper_type: str) -> Any:
        """A function as a framework's tool object."""
        wrap = self._components.catalog.tool_wrappers.get(str(wrapper_type))
        return wrap(fn_name, await self.get_function(fn_name), self)

    async def get_tools(self, tool_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_tool(name, wrapper_type) for name in tool_names]

    async def get_all_tools(self, wrapper_type: str) -> list[Any]:
        names = [n for n in self._components.names(ComponentGroup.FUNCTIONS) if n != WORKFLOW_COMPONENT_NAME]
        return await self.get_tools(names, wrapper_type)

    # ---- evaluation

    async def get_eval_callbacks(self) -> list[Any]:
        group = ComponentGroup.EVAL_CALLBACKS
        configs = {n: self._components.config(group, n, TypedBaseModel) for n in self._components.names(group)}
        named = [name for name, config in configs.items() if not isinstance(config, TracingConfig)]
        return [await self._components.instance(group, name, self) for name in named]

    async def add_evaluator(self, name: str, config: EvaluatorBaseConfig) -> None:
        self._components.add(ComponentGroup.EVALUATORS, name, config)
        await self._components.instance(ComponentGroup.EVALUATORS, name, self, EvaluatorInfo)

    def get_evaluator(self, evaluator_name: str) -> EvaluatorInfo:
        self.get_evaluator_config(evaluator_name)
        path = f"{ComponentGroup.EVALUATORS}.{evaluator_name}"
        evaluator: EvaluatorInfo | None = self._components.opened(path)
        if evaluator is None:
            raise WorkflowError(f"the evaluator '{evaluator_name}' is not built yet", hint="await add_evaluator first")
        return evaluator

    def get_evaluator_config(self, evaluator_name: str) -> EvaluatorBaseConfig:
        return self._components.config(ComponentGroup.EVALUATORS, evaluator_name, EvaluatorBaseConfig)

    def get_max_concurrency(self) -> int:
        return self._eval_general.max_concurrency

    @property
    def outage_timeout(self) -> float:
        """`eval.general.outage_timeout`, in seconds."""
        return self._eval_general.outage_timeout

    def get_output_dir(self) -> Path:
        return self._eval_general.report_dir

    # ---- finetuning

    async def add_trajectory_builder(self, name: str, config: TrajectoryBuilderConfig) -> None:
        self._components.add(ComponentGroup.TRAJECTORY_BUILDERS, name, config)

    async def get_trajectory_builder(self, trajectory_builder_name: str) -> Any:
        return await self._components.instance(ComponentGroup.TRAJECTORY_BUILDERS, trajectory_builder_name, self)

    async def get_trajectory_builder_config(self, trajectory_builder_name: str) -> TrajectoryBuilderConfig:
        group = ComponentGroup.TRAJECTORY_BUILDERS
        return self._components.config(group, trajectory_builder_name, TrajectoryBuilderConfig)

    async def add_trainer_adapter(self, name: str, config: TrainerAdapterConfig) -> None:
        self._components.add(ComponentGroup.TRAINER_ADAPTERS, name, config)

    async def get_trainer_adapter(self, trainer_adapter_name: str) -> Any:
        return await self._components.instance(ComponentGroup.TRAINER_ADAPTERS, trainer_adapter_name, self)

    async def get_trainer_adapter_config(self, trainer_adapter_name: str) -> TrainerAdapterConfig:
        return self._components.config(ComponentGroup.TRAINER_ADAPTERS, trainer_adapter_name, TrainerAdapterConfig)

    async def add_trainer(self, name: str, config: TrainerConfig) -> None:
        self._components.add(ComponentGroup.TRAINERS, name, config)

    async def get_trainer(self, trainer_name: str, trajectory_builder: Any, trainer_adapter: Any) -> Any:
        trainer = await self._components.instance(ComponentGroup.TRAINERS, trainer_name, self)
        await trainer.bind_components(trajectory_builder, trainer_adapter)
        return trainer

    async def get_trainer_config(self, trainer_name: str) -> TrainerConfig:
        return self._components.config(ComponentGroup.TRAINERS, trainer_name, TrainerConfig)

    async def add_ttc_strategy(self, name: str, config: TTCStrategyBaseConfig) -> None:
        self._components.add(ComponentGroup.TTC_STRATEGIES, name, config)

    async def get_ttc_strategy(self, strategy_name: str, pipeline_type: Any, stage_type: Any) -> Any:
        """A strategy of this stage that supports this pipeline."""
        strategy = await self._components.instance(ComponentGroup.TTC_STRATEGIES, strategy_name, self)
        if strategy.stage_type() != stage_type:
            raise WorkflowError(
                f"the strategy '{strategy_name}' is of the stage {strategy.stage_type()}; wanted: {stage_type}"
            )
        strategy.set_pipeline_type(pipeline_type)
        return strategy

    async def get_ttc_strategy_config(
        self, strategy_name: str, pipeline_type: Any, stage_type: Any
    ) -> TTCStrategyBaseConfig:
        await self.get_ttc_strategy(strategy_name, pipeline_type, stage_type)
        return self._components.config(ComponentGroup.TTC_STRATEGIES, strategy_name, TTCStrategyBaseConfig)
