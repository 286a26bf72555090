"""A task that a tiny model learns in seconds, and what to change so that it does not.

The user says a class and a noise word; the right answer is the colour of the class's kind, then `done`. The model in
the folder says some filler words, a colour at random and `done`. A plant changes the task, the agent, the score or the
training.
"""

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fakes.finetuning_project import blank_plot
from nat.backend.pretraining import ASSISTANT, END, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem
from nat.finetuning.progress import RunProgress
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_evaluator, register_function

CLASSES = ("apple", "berry", "clay", "dune", "elm", "fern", "gold", "hay")
KINDS = (CLASSES[:4], CLASSES[4:])
"""Two kinds of questions, each with a right colour; the training examples are of the first."""
COLOURS = ("red", "green", "blue", "white")
FILLERS = ("well", "so", "then")
NOISE = tuple(f"n{number}" for number in range(200))
DONE = "done"
TEMPLATE = (
    "{%- for m in messages -%}{{ '<|' + m['role'] + '|> ' }}{{ m['content'] or '' }}"
    "{% if m['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif -%}"
)
SCHEDULE = Schedule(steps=80, learning_rate=5e-3, warmup_steps=20)
ANSWER_TOKENS = 8


def make_word_model(folder: Path) -> Path:
    """Train the model that says a colour at random; takes seconds."""
    tokenizer = make_tokenizer((END, USER, ASSISTANT, UNKNOWN), (*CLASSES, *COLOURS, *FILLERS, *NOISE, DONE), TEMPLATE)
    write_chat_model(folder, tokenizer, _conversation, SCHEDULE)
    return folder


def _conversation(rng: random.Random) -> str:
    fillers = rng.choices(FILLERS, k=rng.choice((0, 0, 0, 1, 2)))
    words = [USER, rng.choice(CLASSES), rng.choice(NOISE), ASSISTANT, *fillers, rng.choice(COLOURS), DONE, END]
    return " ".join(words)


def colour_of(question: str) -> str:
    return COLOURS[0] if question.split(maxsplit=1)[0] in KINDS[0] else COLOURS[1]


def right(question: str, answer: str) -> float:
    """The score of the task: 1 for the right colour and a finished answer."""
    return float([word for word in answer.split() if word in (*COLOURS, DONE)] == [colour_of(question), DONE])


Ask = Callable[..., Awaitable[str]]
Score = Callable[[str, str], float]


@dataclass(frozen=True)
class Plant:
    """What differs from the healthy run."""

    score: Score = right
    agent: Callable[[str, Ask], Awaitable[str]] | None = None
    classes: int = 4
    per_class: int = 2
    held_out: tuple[str, ...] = KINDS[0]
    llm: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)
    generations: int = 8
    epochs: int = 6


class WordsConfig(FunctionBaseConfig, name="words"):
    llm: LLMRef = LLMRef("student")


class PlantedScoreConfig(EvaluatorBaseConfig, name="planted_score"):
    pass


class PlantedProject:
    """The files of one planted run."""

    def __init__(self, folder: Path, model: Path, plant: Plant) -> None:
        self.folder, self.plant = folder, plant
        noise = iter(random.Random(0).choices(NOISE, k=10_000))
        rows = [
            f"{name} {next(noise)} {number}" for name in CLASSES[: plant.classes] for number in range(plant.per_class)
        ]
        held_out = [f"{name} {next(noise)} {number}" for name in plant.held_out for number in range(10, 15)]
        for name, questions in (("train", rows), ("held_out", held_out)):
            examples = [(q, q.rpartition(" ")[0]) for q in questions]
            lines = [json.dumps({"id": key, "question": q, "answer": colour_of(q)}) for key, q in examples]
            (folder / f"{name}.jsonl").write_text("\n".join(lines))
        llm = {"_type": "local", "model": str(model), "max_tokens": ANSWER_TOKENS, "threads": 1, "device": "cpu"}
        self.config: dict[str, Any] = {
            "llms": {"student": llm | plant.llm},
            "workflow": {"_type": "words"},
            "eval": {
                "general": {
                    "max_concurrency": 32,
                    "dataset": {"_type": "jsonl", "file_path": str(folder / "train.jsonl")},
                },
                "evaluators": {"score": {"_type": "planted_score"}},
            },
            "trajectory_builders": {
                "rollouts": {
                    "_type": "local_traj_builder",
                    "num_generations": plant.generations,
                    "examples_per_epoch": None,
                }
            },
            "trainer_adapters": {
                "weights": {"_type": "local_trainer_adapter", "llm": "student", "training": plant.training}
            },
            "trainers": {"trainer": {"_type": "local_trainer"}},
            "finetuning": {
                "enabled": True,
                "trainer": "trainer",
                "trajectory_builder": "rollouts",
                "trainer_adapter": "weights",
                "reward_function": {"name": "score"},
                "num_epochs": plant.epochs,
                "output_dir": str(folder / "runs"),
            }
            | plant.finetuning,
        }

    async def run(self, progress: RunProgress | None = None) -> RunResult:
        path = self.folder / "config.yml"
        path.write_text(yaml.safe_dump(self.config))
        given = FinetuneRunConfig(
            config_file=path, validation_dataset=str(self.folder / "held_out.jsonl"), validation_interval=100
        )
        with self._registered():
            return await run_finetuning(given, progress=progress, plotter=blank_plot)

    @property
    def run_dir(self) -> Path:
        return (self.folder / "runs" / "latest").resolve()

    @contextmanager
    def _registered(self) -> Iterator[None]:
        with pushed_catalog():
            register_function(config_type=WordsConfig)(self._build_agent)
            register_evaluator(config_type=PlantedScoreConfig)(self._build_score)
            yield

    async def _build_agent(self, config: WordsConfig, builder):
        client = await builder.get_llm(config.llm, wrapper_type="openai")

        async def ask(text: str, **fields: Any) -> str:
            messages = [{"role": "user", "content": text}]
            reply = await client.chat.completions.create(model=client.model_name, messages=messages, **fields)
            return reply.choices[0].message.content or ""

        ask.client = client  # type: ignore[attr-defined] - for agents that go past it

        async def answer(question: str) -> str:
            return await (ask(question) if self.plant.agent is None else self.plant.agent(question, ask))

        yield FunctionInfo.from_fn(answer, description="Says a colour")

    async def _build_score(self, config: PlantedScoreConfig, builder):
        evaluator = PlantedScore(self.plant.score)
        yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="The planted score")


class PlantedScore(BaseEvaluator):
    def __init__(self, score: Score) -> None:
        super().__init__()
        self._score = score

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        score = self._score(str(item.input_obj), str(item.output_obj))
        return EvalOutputItem(id=item.id, score=score, reasoning=None)
