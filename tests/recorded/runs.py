"""The recorded runs: what each is made of. Small, seeded, one rollout at a time."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.openai_replies import Say, tool_call
from fakes.openai_server import Refuse, Reply, SeenRequest
from fakes.planted_project import CLASSES, COLOURS, DONE, NOISE

Tree = dict[str, Any]
Script = Callable[[SeenRequest], Reply]


class Coin:
    """Right every second time that it is asked the same, whatever it answered before."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def heads(self, request: SeenRequest) -> bool:
        """True for the second, fourth … time."""
        messages = request.body.get("messages", ())
        given = [message for message in messages if message["role"] not in {"assistant", "tool"}]
        text = re.sub("right|wrong", "", json.dumps([len(messages), given]))
        count = self.asked[text] = self.asked.get(text, -1) + 1
        return count % 2 == 1

    def __call__(self, request: SeenRequest) -> Reply:
        return Say("right" if self.heads(request) else "wrong")


class Tools(Coin):
    """Looks twice, then answers; the second look is at another place in every second rollout."""

    def __call__(self, request: SeenRequest) -> Reply:
        heads = self.heads(request)
        seen = sum(message["role"] == "tool" for message in request.messages)
        if seen == 2:
            return Say("It is right" if heads else "It is wrong", tempered=True)
        place = f"{seen}{'b' if heads and seen else ''}"
        return Say("Let me see.", (tool_call("look", {"at": place}, f"call_{seen}"),), tempered=True)


class Faulty(Coin):
    """Fails in each way."""

    def __call__(self, request: SeenRequest) -> Reply:
        heads, text = self.heads(request), request.last_text
        if heads and "0" in text:
            return Say("raise")
        if heads and "1" in text:
            return Refuse(500, "the model has left")
        if heads and "2" in text:
            return Say("no score")
        return Say("right" if heads else "wrong")


@dataclass(frozen=True)
class Recorded:
    """One run: the server's script (None for our backend), and what its configuration has besides the usual."""

    script: Callable[[], Script] | None = None
    server: str = "openai"
    """openai, art, or nothing for our backend."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """By dotted key; None removes a key."""
    files: Mapping[str, str] = field(default_factory=dict)
    rows: int = 3


def usual(base_url: str, model: str) -> Tree:
    """The configuration that every run begins with."""
    return {
        "llms": {"student": _served(base_url) if base_url else _local(model)},
        "workflow": {"_type": "recorded_agent", "kind": "one_call"},
        "eval": {
            "general": {"max_concurrency": 1, "dataset": {"_type": "jsonl", "file_path": "train.jsonl"}},
            "evaluators": {"score": {"_type": "recorded_score"}},
        },
        "trajectory_builders": {"rollouts": {"_type": "local_traj_builder", "num_generations": 2}},
        "trainer_adapters": {
            "weights": {"_type": "kept"} if base_url else {"_type": "local_trainer_adapter", "llm": "student"}
        },
        "trainers": {"trainer": {"_type": "local_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "trainer",
            "trajectory_builder": "rollouts",
            "trainer_adapter": "weights",
            "reward_function": {"name": "score"},
            "num_epochs": 2,
            "output_dir": "runs",
            "run_configuration": {"validation_dataset": "held_out.jsonl", "validation_interval": 2},
        },
    }


def _served(base_url: str, model: str = "tiny") -> Tree:
    return {"_type": "openai", "base_url": base_url, "api_key": "k", "model_name": model, "max_retries": 0}


def _local(model: str) -> Tree:
    return {"_type": "local", "model": model, "max_tokens": 8, "threads": 1, "device": "cpu"}


def jsonl(rows: list[Tree]) -> str:
    """A file with a row on each line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


_RIGHT = f"{COLOURS[0]} {DONE}"
_ASKED = {f"{CLASSES[n % 4]} {NOISE[n]}": f"{COLOURS[1 + n % 3]} {DONE}" for n in range(8)}
"""Questions to the word model, each with a wrong answer."""
_PAIRS = jsonl([{"prompt": q, "chosen": _RIGHT, "rejected": wrong} for q, wrong in _ASKED.items()])
_LABELS = jsonl(
    [{"prompt": q, "completion": a, "label": a == _RIGHT} for q, wrong in _ASKED.items() for a in (_RIGHT, wrong)]
)
_COLOURED = {
    name: jsonl(
        [{"id": f"{at}", "question": f"{CLASSES[at]} {NOISE[at + begin]}", "answer": _RIGHT} for at in range(4)]
    )
    for name, begin in (("train.jsonl", 20), ("held_out.jsonl", 60))
}
_FROM_FILE = {"trajectory_builders.rollouts": {"_type": "dataset_traj_builder", "file_path": "rows.jsonl"}}
RUNS: Mapping[str, Recorded] = {
    "several_turns": Recorded(
        Tools,
        config={
            "workflow.kind": "several_turns",
            "finetuning.reward_function": {"name": "score", "credit": "return_to_go", "gamma": 0.5},
        },
    ),
    "failing": Recorded(Faulty, config={"workflow.kind": "failing", "finetuning.max_failure_rate": 1.0}, rows=5),
    "overlap": Recorded(
        Coin,
        config={
            "finetuning.max_staleness": 1,
            "finetuning.num_epochs": 3,
            "finetuning.run_configuration.validation_interval": 3,
            "trainer_adapters.weights.answers_meanwhile": [6, 6, 0],
        },
    ),
    "art": Recorded(
        Coin,
        server="art",
        config={
            "trajectory_builders.rollouts._type": "openpipe_art_traj_builder",
            "trainers.trainer._type": "openpipe_art_trainer",
            "trainer_adapters.weights": {
                "_type": "openpipe_art_trainer_adapter",
                "backend": {
                    "ip": "127.0.0.1",
                    "port": "$PORT",
                    "name": "recorded",
                    "project": "recorded",
                    "base_model": "tiny",
                    "api_key": "default",
                },
                "training": {"learning_rate": 1e-6},
            },
            "llms.student.model_name": "recorded",
        },
    ),
    "grpo": Recorded(
        files=_COLOURED,
        config={"trajectory_builders.rollouts.num_generations": 4, "eval.evaluators.score": {"_type": "exact_match"}},
    ),
    "lora": Recorded(
        files=_COLOURED,
        config={
            "llms.student.lora": {"rank": 4},
            "trainer_adapters.weights.training": {"algorithm": "gspo", "steps_per_batch": 2, "beta": 0.01},
            "trajectory_builders.rollouts.num_generations": 4,
        },
    ),
    "dpo": Recorded(
        files={**_COLOURED, "rows.jsonl": _PAIRS},
        config={**_FROM_FILE, "trainer_adapters.weights.training": {"algorithm": "dpo", "steps_per_batch": 2}},
    ),
    "kto": Recorded(
        files={**_COLOURED, "rows.jsonl": _LABELS},
        config={**_FROM_FILE, "trainer_adapters.weights.training": {"algorithm": "kto"}},
    ),
    "distill": Recorded(
        files=_COLOURED,
        config={
            "llms.teacher": _local("$TEACHER"),
            "trainer_adapters.weights.teacher": "teacher",
            "trainer_adapters.weights.training": {"algorithm": "distill"},
            "trajectory_builders.rollouts.num_generations": 1,
        },
    ),
}
