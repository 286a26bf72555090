"""The upstream toolkit as in its guide: `nat finetune`, a LangChain agent, trajectories from its callbacks.

Only the agent and the evaluator are ours. The agent answers with its first token, since the tiny model's texts are
bytes; the evaluator rewards one token.
"""

import asyncio
import json
from pathlib import Path

import game
import yaml
from langchain_core.messages import HumanMessage
from openai import AsyncOpenAI

from nat.builder.evaluator import EvaluatorInfo
from nat.builder.framework_enum import LLMFrameworkEnum
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.function import FunctionBaseConfig
from nat.finetuning.finetuning_runtime import finetuning_main
from nat.plugins.eval.data_models.evaluator_io import EvalOutputItem
from nat.plugins.eval.evaluator.base_evaluator import BaseEvaluator

EPOCHS = 2
"""Few epochs, because the upstream adapter polls only every ten seconds."""


class BeginnerConfig(FunctionBaseConfig, name="beginner"):
    """An agent that makes one call."""

    llm: LLMRef


class BeginningConfig(EvaluatorBaseConfig, name="beginning"):
    """An evaluator of the answer's first token."""


class Beginning(BaseEvaluator):
    """Scores 1 for the rewarded token, else 0."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        return EvalOutputItem(id=item.id, score=float(item.output_obj == item.expected_output_obj), reasoning="")


def register() -> None:
    """Register both with the toolkit before it discovers plug-ins."""

    @register_function(config_type=BeginnerConfig, framework_wrappers=[LLMFrameworkEnum.LANGCHAIN])
    async def beginner(config, builder):
        llm = await builder.get_llm(config.llm, wrapper_type=LLMFrameworkEnum.LANGCHAIN)

        async def answer(question: str) -> str:
            reply = await llm.ainvoke([HumanMessage(question)], max_tokens=3)
            return reply.response_metadata["logprobs"]["content"][0]["token"]

        yield FunctionInfo.from_fn(answer, description="Answers with its first token.")

    @register_evaluator(config_type=BeginningConfig)
    async def beginning(config, builder):
        yield EvaluatorInfo(config=config, evaluate_fn=Beginning().evaluate, description="The wanted beginning.")


def configuration(told: dict[str, str]) -> dict:
    """The guide's basic configuration, with our agent, evaluator and names."""
    return {
        "llms": {
            "training_llm": {
                "_type": "openai",
                "model_name": told["name"],
                "base_url": told["inference_url"],
                "api_key": told["api_key"],
                "temperature": 1.0,
            }
        },
        "workflow": {"_type": "beginner", "llm": "training_llm"},
        "eval": {
            "general": {
                "max_concurrency": 16,
                "output_dir": "eval",
                "dataset": {"_type": "json", "file_path": "train.json"},
            },
            "evaluators": {"my_reward": {"_type": "beginning"}},
        },
        "trajectory_builders": {"art_builder": {"_type": "openpipe_art_traj_builder", "num_generations": game.SAMPLES}},
        "trainer_adapters": {
            "art_adapter": {
                "_type": "openpipe_art_trainer_adapter",
                "backend": {
                    "ip": told["host"],
                    "port": int(told["port"]),
                    "name": told["name"],
                    "project": "interop",
                    "base_model": told["base_model"],
                    "api_key": told["api_key"],
                },
                "training": {"learning_rate": game.LEARNING_RATE},
            }
        },
        "trainers": {"art_trainer": {"_type": "openpipe_art_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "art_trainer",
            "trajectory_builder": "art_builder",
            "trainer_adapter": "art_adapter",
            "reward_function": {"name": "my_reward"},
            "num_epochs": EPOCHS,
            "output_dir": "output",
        },
    }


def write(told: dict[str, str], wanted: dict[str, str]) -> Path:
    """Write the data and the configuration into the current folder."""
    rows = [{"id": prompt, "question": prompt, "answer": token} for prompt, token in wanted.items()]
    Path("train.json").write_text(json.dumps(rows))
    file = Path("config.yml")
    file.write_text(yaml.safe_dump(configuration(told)))
    return file


async def main() -> None:
    """Run `nat finetune` and measure before and after; the base model is the untrained one."""
    told = game.settings()
    client = AsyncOpenAI(base_url=told["inference_url"], api_key=told["api_key"])
    wanted = await game.wanted_tokens(client, told["base_model"])
    before = await game.probability(client, told["base_model"], wanted)
    register()
    await finetuning_main(FinetuneRunConfig(config_file=write(told, wanted)))
    game.report(probabilities=[before, await game.probability(client, told["name"], wanted)])


asyncio.run(main())
