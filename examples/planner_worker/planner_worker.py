"""Two models in one workflow: a planner writes a sum for a question in words, and a worker adds."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig


class PlannerWorkerConfig(FunctionBaseConfig, name="planner_worker"):
    """The models of both roles."""

    planner: LLMRef
    worker: LLMRef


@register_function(config_type=PlannerWorkerConfig)
async def planner_worker(config: PlannerWorkerConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Answer a question by two calls, one of each model."""
    planner = await builder.get_llm(config.planner, wrapper_type="openai")
    worker = await builder.get_llm(config.worker, wrapper_type="openai")

    async def answer(question: str) -> str:
        plan = await planner.chat.completions.create(
            model=planner.model_name, messages=[{"role": "user", "content": f"plan {question}"}]
        )
        work = await worker.chat.completions.create(
            model=worker.model_name, messages=[{"role": "user", "content": f"add {plan.choices[0].message.content}"}]
        )
        return str(work.choices[0].message.content)

    yield FunctionInfo.from_fn(answer)
