"""The agent that is trained, and its evaluator."""

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem

BUILT: list[str] = []
"""One entry for each build of the workflow."""


class MyAgentWorkflowConfig(FunctionBaseConfig, name="my_agent_workflow"):
    """An agent that thinks before it answers."""

    llm: LLMRef


@register_function(config_type=MyAgentWorkflowConfig)
async def my_agent_workflow(config: MyAgentWorkflowConfig, builder: Builder):
    BUILT.append("built")
    client = await builder.get_llm(config.llm, wrapper_type="openai")

    async def answer(question: str) -> str:
        messages = [{"role": "user", "content": f"Think about: {question}"}]
        thought = await client.chat.completions.create(model=client.model_name, messages=messages)
        messages += [
            {"role": "assistant", "content": thought.choices[0].message.content},
            {"role": "user", "content": "Now answer."},
        ]
        final = await client.chat.completions.create(model=client.model_name, messages=messages)
        return final.choices[0].message.content

    yield FunctionInfo.from_fn(answer, description="Thinks, then answers.")


class MyCustomEvaluatorConfig(EvaluatorBaseConfig, name="my_custom_evaluator"):
    """Scores 1 for the right answer, else 0."""


class MyCustomEvaluator(BaseEvaluator):
    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        right = item.output_obj == item.expected_output_obj
        return EvalOutputItem(id=item.id, score=float(right), reasoning=f"said {item.output_obj}")


@register_evaluator(config_type=MyCustomEvaluatorConfig)
async def my_custom_evaluator(config: MyCustomEvaluatorConfig, builder: EvalBuilder):
    evaluator = MyCustomEvaluator(max_concurrency=builder.get_max_concurrency())
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="Exact answers.")
