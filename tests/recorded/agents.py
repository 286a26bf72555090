"""The agents, scores and adapter of the recorded runs, as a user writes them: with the guide's imports alone."""

import asyncio
from typing import Any, ClassVar

from fakes.openai_server import OpenAIServer
from nat.builder.context import Context
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function, register_trainer_adapter
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import (
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "finish")
]


class AgentConfig(FunctionBaseConfig, name="recorded_agent"):
    """`kind` is the name of a function below."""

    kind: str
    llm: LLMRef = LLMRef("student")


class KeptConfig(TrainerAdapterConfig, name="kept"):
    """The adapter below."""

    answers_meanwhile: tuple[int, ...] = ()
    """Answers of the server that each job waits for."""


class ScoreConfig(EvaluatorBaseConfig, name="recorded_score"):
    """1 if the answer ends with the expected one; `no score` has none."""


async def one_call(question: str, ask: Any) -> str:
    """One question, one answer."""
    return (await ask([{"role": "user", "content": question}])).content or ""


async def several_turns(question: str, ask: Any) -> str:
    """A loop with tools, streamed; each look earns a reward."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": question},
    ]
    for turn in range(3):
        answer = await ask(messages, tools=TOOLS[: 1 + (turn > 0)], stream=turn == 1, temperature=0.5 + turn / 2)
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls or []:
            Context.get().reward(0.25)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"saw {call.function.arguments}"})
        if not answer.tool_calls:
            break
        messages.append(
            {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]}
        )
    return str(messages[-1].get("content"))


async def failing(question: str, ask: Any) -> str:
    """It raises, its server refuses, or its answer has no score."""
    answer = (await ask([{"role": "user", "content": question}])).content or ""
    if answer == "raise":
        raise RuntimeError("the tool is out of order")
    return answer


class Score(BaseEvaluator):
    """The score of a rollout."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """Right at the end is 1; `no score` has none."""
        said = str(item.output_obj)
        if said == "no score":
            return EvalOutputItem(id=item.id, score=None, reasoning=None, error="nothing to score")
        score = float(said.strip(" .").endswith(str(item.expected_output_obj)))
        return EvalOutputItem(id=item.id, score=score, reasoning={"said": said[-20:]})


class Kept(TrainerAdapter):
    """Trains nothing; the server names new weights when a job ends."""

    drops_equal_groups = True
    adapter_config: KeptConfig
    server: ClassVar[OpenAIServer]
    jobs = 0

    async def is_healthy(self) -> bool:
        return True

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        self.jobs += 1
        return TrainingJobRef(run_id=trajectories.run_id, backend="kept", metadata={"job": self.jobs})

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        job = (ref.metadata or {})["job"]
        done = TrainingStatusEnum.COMPLETED
        found = {"policy_version": f"tiny@{job}", "metrics": {"train/entropy": 1.0 / job, "trained_tokens": 7.0}}
        return TrainingJobStatus(run_id=ref.run_id, backend="kept", status=done, progress=100.0, metadata=found)

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        job = (ref.metadata or {})["job"]
        wanted = len(self.server.requests) + dict(enumerate(self.adapter_config.answers_meanwhile, 1)).get(job, 0)
        while len(self.server.requests) < wanted:  # noqa: ASYNC110 - the server knows of no one who waits
            await asyncio.sleep(0.001)
        self.server.fingerprint = f"tiny@{job}"
        return await self.status(ref)

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        pass


def register() -> None:
    """Register them in the current catalog."""

    @register_function(config_type=AgentConfig)
    async def recorded_agent(config: AgentConfig, builder: Any) -> Any:
        client = await builder.get_llm(config.llm, wrapper_type="openai")

        async def ask(messages: list[dict[str, Any]], *, stream: bool = False, **more: Any) -> Any:
            request = {"model": client.model_name, "messages": messages, **more}
            if not stream:
                return (await client.chat.completions.create(**request)).choices[0].message
            async with client.chat.completions.stream(**request) as events:
                async for _ in events:
                    pass
                return (await events.get_final_completion()).choices[0].message

        async def answer(question: str) -> str:
            return await globals()[config.kind](question, ask)

        yield FunctionInfo.from_fn(answer, description="An agent.")

    @register_evaluator(config_type=ScoreConfig)
    async def recorded_score(config: ScoreConfig, builder: Any) -> Any:
        score = Score(max_concurrency=1)
        yield EvaluatorInfo(config=config, evaluate_fn=score.evaluate, description="Right at the end.")

    @register_trainer_adapter(config_type=KeptConfig)
    async def kept(config: KeptConfig, builder: Any) -> Any:
        yield Kept(config)
