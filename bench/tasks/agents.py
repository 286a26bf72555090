"""The agents and the scores of the tasks, for the YAML that `bench.defaults` writes; the harness imports this file.

- `guess`: find a number between 1 and 32 by guessing; each answer says higher or lower. Eight turns at most.
- `order`: sort six letters; the score is the share of places that are right.
- `dial`: answer a name with its two digits, which nobody tells; few answers are right at first.
"""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig

NUMBERS, TURNS = 32, 8


class AskConfig(FunctionBaseConfig, name="bench_ask"):
    """Configuration of an agent that makes one call."""

    llm: LLMRef


class GuessConfig(FunctionBaseConfig, name="bench_guess"):
    """Configuration of the guessing agent."""

    llm: LLMRef


class PlacesConfig(EvaluatorBaseConfig, name="bench_places"):
    """Configuration of the score of a sorted answer."""


@register_function(config_type=AskConfig)
async def ask(config: AskConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Pass the question on, and give the model's answer."""
    client: Any = await builder.get_llm(config.llm, wrapper_type="openai")

    async def answer(question: str) -> str:
        return await _said(client, [{"role": "user", "content": question}])

    yield FunctionInfo.from_fn(answer)


@register_function(config_type=GuessConfig)
async def guess(config: GuessConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Let the model guess until it is right or has no turn left; the answer is its last guess."""
    client: Any = await builder.get_llm(config.llm, wrapper_type="openai")

    async def answer(question: str) -> str:
        secret, hint = question.split()
        messages, said = [{"role": "user", "content": f"not {hint}"}], ""
        for _ in range(TURNS):
            said = await _said(client, messages)
            if said == secret or not said.isdigit():
                break
            hint = "higher" if int(said) < int(secret) else "lower"
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": hint}]
        return said

    yield FunctionInfo.from_fn(answer)


@register_evaluator(config_type=PlacesConfig)
async def places(config: PlacesConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Give the share of the places at which answer and expected answer have the same word."""

    async def evaluate(given: EvalInput) -> EvalOutput:
        return EvalOutput(
            average_score=None,
            eval_output_items=[
                EvalOutputItem(id=item.id, score=_share(item), reasoning="") for item in given.eval_input_items
            ],
        )

    yield EvaluatorInfo(config=config, evaluate_fn=evaluate, description="share of the right places")


async def _said(client: Any, messages: list[dict[str, str]]) -> str:
    reply = await client.chat.completions.create(model=client.model_name, messages=messages)
    return str(reply.choices[0].message.content or "").strip()


def _share(item: EvalInputItem) -> float:
    wanted, said = str(item.expected_output_obj).split(), str(item.output_obj).split()
    return sum(a == b for a, b in zip(wanted, said, strict=False)) / len(wanted)
