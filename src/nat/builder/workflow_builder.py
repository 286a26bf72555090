"""Builds what a configuration names: each component when it is first asked for, all closed in reverse order."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nat.builder.builder import Builder, current_builder
from nat.builder.components import Components
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function import Function
from nat.builder.llm import LLMProviderInfo
from nat.builder.opening import Opener
from nat.builder.training_parts import TrainingParts
from nat.builder.workflow import Workflow
from nat.builder.yielded import as_function, expected
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import EmptyFunctionConfig, FunctionBaseConfig
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.data_models.llm import LLMBaseConfig
from nat.errors import ANY_FAILURE, WorkflowError, describe_error
from nat.registry.catalog import Catalog, current_catalog

_llm_name: ContextVar[str | None] = ContextVar("nat_llm_name", default=None)


class WorkflowBuilder(TrainingParts):
    """The components of one configuration; an async context manager that owns everything it opened."""

    def __init__(
        self,
        *,
        eval_general: EvalGeneralConfig | None = None,
        registry: Catalog | None = None,
        run_dir: Path | None = None,
    ) -> None:
        self._stack = AsyncExitStack()
        self._components = Components(registry or current_catalog(), Opener(self._stack))
        self._eval_general = eval_general or EvalGeneralConfig()
        self._run_dir = run_dir
        self._outer: Builder | None = None
        self._llms_in_use: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def from_config(
        cls, config: Config, run_dir: Path | None = None, *, workflow: bool = True
    ) -> "AsyncIterator[WorkflowBuilder]":
        """Open llms, functions, evaluators and the workflow; the parts of finetuning follow when they are asked for.

        `run_dir` is the folder in which components may keep files; None for a run that leaves nothing. Without
        `workflow`, which then runs elsewhere, functions are built when something asks for them.
        """
        async with cls(eval_general=config.eval.general, run_dir=run_dir) as builder:
            builder._components.hold(config)
            for name in config.llms:
                await builder.get_llm_provider(name)
            for name in config.functions if workflow else ():
                await builder.get_function(name)
            for name in config.eval.evaluators:
                await builder._open_evaluator(name)
            if workflow and not isinstance(config.workflow, EmptyFunctionConfig):
                await builder.set_workflow(config.workflow)
            yield builder

    async def __aenter__(self) -> Self:
        self._outer = current_builder.get()
        current_builder.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything in reverse order.

        The error is not thrown into the build functions: what they have after their `yield` is teardown, and it
        has to run then most of all. A teardown that fails too must not hide what went wrong first.
        """
        current_builder.set(self._outer)
        try:
            await self._stack.aclose()
        except ANY_FAILURE as failure:
            if error is None:
                raise
            error.add_note(f"and closing the components failed after that: {describe_error(failure)}")

    @property
    def run_dir(self) -> Path | None:
        return self._run_dir

    @property
    def llm_name(self) -> str | None:
        return _llm_name.get()

    @property
    def llm_names(self) -> list[str]:
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

        function: Function = await self._components.opener.once(path, build)
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
        workflow: Function | None = self._components.opener.opened("workflow")
        if workflow is None:
            raise WorkflowError("there is no workflow", hint="add the section `workflow` to the YAML")
        return workflow

    def get_workflow_config(self) -> FunctionBaseConfig:
        return self.get_workflow().config

    async def build(self, entry_function: str | None = None) -> Workflow:
        """What runs one input: the workflow, or the function that is named."""
        return Workflow(self.get_workflow() if entry_function is None else await self.get_function(entry_function))

    # ---- llms and tools

    async def add_llm(self, name: str, config: LLMBaseConfig) -> None:
        self._components.add(ComponentGroup.LLMS, name, config)
        await self.get_llm_provider(name)

    async def get_llm_provider(self, llm_name: str) -> LLMProviderInfo:
        config, path = self.get_llm_config(llm_name), f"{ComponentGroup.LLMS}.{llm_name}"

        async def build() -> LLMProviderInfo:
            with _building_llm(llm_name):
                return expected(
                    await self._components.build(ComponentGroup.LLMS, path, config, self), LLMProviderInfo, path
                )

        provider: LLMProviderInfo = await self._components.opener.once(path, build)
        return provider

    async def get_llm(self, llm_name: str, wrapper_type: str) -> Any:
        provider = await self.get_llm_provider(llm_name)
        self._llms_in_use.add(str(llm_name))
        client = self._components.catalog.llm_client(type(provider.config), str(wrapper_type))
        with _building_llm(llm_name):
            path = f"{ComponentGroup.LLMS}.{llm_name} for {wrapper_type}"
            return await self._components.opener.enter(path, provider.config, client(provider.config, self))

    async def probe_llms(self) -> None:
        """Raise BackendUnreachable if nobody listens at the address of an LLM that something has a client of."""
        for name in sorted(self._llms_in_use):
            await (await self.get_llm_provider(name)).probe(name)

    async def get_llms(self, llm_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_llm(name, wrapper_type) for name in llm_names]

    def get_llm_config(self, llm_name: str) -> LLMBaseConfig:
        return self._components.config(ComponentGroup.LLMS, llm_name, LLMBaseConfig)

    async def get_tool(self, fn_name: str, wrapper_type: str) -> Any:
        wrap = self._components.catalog.tool_wrappers.get(str(wrapper_type))
        return wrap(fn_name, await self.get_function(fn_name), self)

    async def get_tools(self, tool_names: Sequence[str], wrapper_type: str) -> list[Any]:
        return [await self.get_tool(name, wrapper_type) for name in tool_names]

    async def get_all_tools(self, wrapper_type: str) -> list[Any]:
        names = [n for n in self._components.names(ComponentGroup.FUNCTIONS) if n != WORKFLOW_COMPONENT_NAME]
        return await self.get_tools(names, wrapper_type)

    # ---- evaluation

    async def add_evaluator(self, name: str, config: EvaluatorBaseConfig) -> None:
        self._components.add(ComponentGroup.EVALUATORS, name, config)
        await self._open_evaluator(name)

    async def _open_evaluator(self, name: str) -> None:
        path = f"{ComponentGroup.EVALUATORS}.{name}"
        config = self.get_evaluator_config(name)

        async def build() -> EvaluatorInfo:
            evaluator = await self._components.build(ComponentGroup.EVALUATORS, path, config, self)
            return expected(evaluator, EvaluatorInfo, path)

        await self._components.opener.once(path, build)

    def get_evaluator(self, evaluator_name: str) -> EvaluatorInfo:
        self.get_evaluator_config(evaluator_name)
        path = f"{ComponentGroup.EVALUATORS}.{evaluator_name}"
        evaluator: EvaluatorInfo | None = self._components.opener.opened(path)
        if evaluator is None:
            raise WorkflowError(f"the evaluator '{evaluator_name}' is not built yet", hint="await add_evaluator first")
        return evaluator

    def get_evaluator_config(self, evaluator_name: str) -> EvaluatorBaseConfig:
        return self._components.config(ComponentGroup.EVALUATORS, evaluator_name, EvaluatorBaseConfig)

    def get_max_concurrency(self) -> int:
        return self._eval_general.max_concurrency

    def get_output_dir(self) -> Path:
        return self._eval_general.report_dir


@contextmanager
def _building_llm(name: str) -> Iterator[None]:
    token = _llm_name.set(str(name))
    try:
        yield
    finally:
        _llm_name.reset(token)
