"""An agent that asks the model once, and a judge; both write down each call before it is answered."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem

PLAYED, JUDGED = "played.txt", "judged.txt"
"""Files in the working folder with a line for each call."""


class AgentConfig(FunctionBaseConfig, name="killed_agent"):
    llm: LLMRef = LLMRef("student")
    second: LLMRef | None = None
    """Is asked what the first has answered."""


class JudgeConfig(EvaluatorBaseConfig, name="killed_judge"):
    """Gives each answer a score of its own."""


class Judge(BaseEvaluator):
    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """A share that follows from the answer's text."""
        said = str(item.output_obj)
        note(JUDGED, f"{item.input_obj}: {said}")
        return EvalOutputItem(id=item.id, score=sha256(said.encode()).digest()[0] / 255, reasoning=None)


def note(name: str, line: str) -> None:
    """Append a line, which survives a kill."""
    descriptor = os.open(Path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def register() -> None:
    """Register them in the current catalog."""

    @register_function(config_type=AgentConfig)
    async def killed_agent(config: AgentConfig, builder: Any) -> Any:
        clients = [await builder.get_llm(llm, wrapper_type="openai") for llm in (config.llm, config.second) if llm]

        async def answer(question: str) -> str:
            note(PLAYED, question)
            said = question
            for client in clients:
                messages = [{"role": "user", "content": said}]
                reply = await client.chat.completions.create(model=client.model_name, messages=messages)
                said = reply.choices[0].message.content or ""
            return said

        yield FunctionInfo.from_fn(answer, description="An agent.")

    @register_evaluator(config_type=JudgeConfig)
    async def killed_judge(config: JudgeConfig, builder: Any) -> Any:
        judge = Judge(max_concurrency=1)
        yield EvaluatorInfo(config=config, evaluate_fn=judge.evaluate, description="A judge.")
