"""`_type: python`: an agent, or a score, that is one function of yours; classes with a decorator are for more."""

from collections.abc import AsyncGenerator
from inspect import signature
from typing import Any, get_type_hints

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.builder.threads import called
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.plugins.evaluators.scores import ItemEvaluator, Score
from nat.registry.decorators import register_evaluator, register_function
from nat.registry.imports import function_at


class PythonAgentConfig(FunctionBaseConfig, name="python"):
    """Plays a function of yours, `answer(question, llm)`, which returns the agent's answer."""

    function: str
    """The function, as `agent.py:answer` or `package.module:answer`; async, or run in a thread."""
    llm: LLMRef
    """The model of the client that it gets."""
    framework: str = "openai"
    """Whose client it gets: `openai` is an AsyncOpenAI with the attribute `model_name`, `openai_sync` an OpenAI;
    `langchain` and others are as `builder.get_llm` gives them."""


@register_function(config_type=PythonAgentConfig)
async def python_agent(config: PythonAgentConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """The function with its client."""
    function = function_at(config.function, "question", "llm")
    llm = await builder.get_llm(config.llm, wrapper_type=config.framework)

    async def answer(question: Any) -> Any:
        return await called(function, question, llm)

    first = next(iter(signature(function).parameters))
    answer.__annotations__["question"] = get_type_hints(function).get(first, Any)  # an input of another type is refused
    yield FunctionInfo.from_fn(answer)


class PythonScoreConfig(EvaluatorBaseConfig, name="python"):
    """Scores an answer by a function of yours, `score(item, output)`, which returns a number."""

    function: str
    """The function, as `score.py:score` or `package.module:score`; async, or run in a thread. `item.input_obj` is the
    question, `item.expected_output_obj` the expected answer, `item.full_dataset_entry` the row; `output` is the agent's
    answer."""


@register_evaluator(config_type=PythonScoreConfig)
async def python_score(config: PythonScoreConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """The function on one answer at a time."""
    function = function_at(config.function, "item", "output")

    async def score(item: EvalInputItem) -> Score:
        number = await called(function, item, item.output_obj)
        return number, {"expected": item.expected_output_obj, "answer": item.output_obj}

    evaluator = ItemEvaluator(config.function, score)
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description=config.function)
