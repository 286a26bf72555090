"""The projects whose runs are killed: small, seeded, one rollout at a time, with one thread."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fakes.command_program import WORKFLOW, agent
from fakes.planted_project import CLASSES, COLOURS, DONE, NOISE
from killed.agents import PLAYED
from recorded.playing import MODEL, changed, make_teacher
from recorded.runs import IMITATION, RUNS, imitates, jsonl, usual


@dataclass(frozen=True)
class Project:
    """What a project has besides the usual."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """By dotted key; None removes a key."""
    files: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = True
    """Equal runs have equal weights."""


def _questions(begin: int, *, asked: bool = False) -> str:
    """Two rows; programs get a question as a file of JSON."""
    texts = [f"{CLASSES[at]} {NOISE[at + begin]}" for at in range(2)]
    rows = [{"id": f"{at}", "question": {"ask": text} if asked else text} for at, text in enumerate(texts)]
    return jsonl([{**row, "answer": "red"} for row in rows])


def _demonstrations() -> str:
    said = {"role": "assistant", "content": f"{COLOURS[0]} {DONE}"}
    asked = [{"role": "user", "content": f"{CLASSES[at]} {NOISE[at]}"} for at in range(2)]
    return jsonl([{"messages": [each, said]} for each in asked])


_USUAL = {
    "llms.student.max_tokens": 6,
    "workflow": {"_type": "killed_agent"},
    "eval.evaluators": {"judge": {"_type": "killed_judge"}},
    "finetuning.reward_function.name": "judge",
    "finetuning.trackers": {"notes": {"_type": "killed_notes"}},
    "finetuning.run_configuration.validation_interval": 1,
}
"""Of all projects: two epochs of two examples with two generations, and validations."""


def _recorded(name: str) -> Project:
    """As one of the recorded runs, with the data of these projects."""
    recorded = RUNS[name]
    return Project(recorded.config, {key: text for key, text in recorded.files.items() if key == "rows.jsonl"})


def _teaching() -> Project:
    """Its teacher scores one row at a time, from its beginning, so that its numbers do not follow from the load."""
    recorded = _recorded("distill")
    alone = {"llms.teacher.max_num_seqs": 1, "llms.teacher.prefix_cache_mb": 0}
    return replace(recorded, config={**recorded.config, **alone})


_PROGRAM = f"open('$FOLDER/{PLAYED}', 'a').write(open('task.json').read() + '\\n')\n" + agent("1.0")
PROJECTS: Mapping[str, Project] = {
    "plain": Project(),
    "phases": Project(
        {
            **IMITATION,
            "finetuning.phases": [imitates("sft", 1), {"name": "play", "num_epochs": 1}, imitates("again", 1)],
        },
        {"rows.jsonl": _demonstrations()},
    ),
    "pairs": _recorded("dpo"),
    "labels": _recorded("kto"),
    "teacher": _teaching(),
    "team": Project(
        {
            "llms.worker": {"_type": "local", "model": "model", "max_tokens": 6, "threads": 1, "device": "cpu"},
            "workflow": {"_type": "killed_agent", "second": "worker"},
            "finetuning.trainer_adapter": None,
            "finetuning.trainer_adapters": {"one": "weights", "other": "worker"},
        }
    ),
    "programs": Project(
        {"workflow": dict(WORKFLOW)},
        {
            "agent/agent.py": _PROGRAM,
            "train.jsonl": _questions(20, asked=True),
            "held_out.jsonl": _questions(60, asked=True),
        },
    ),
}


def make_project(folder: Path, project: Project) -> None:
    """Write the files that a user would have."""
    folder.mkdir(parents=True)
    tree = changed(usual("", "model"), {**_USUAL, **project.config})
    files = {"train.jsonl": _questions(20), "held_out.jsonl": _questions(60), **project.files}
    for name, text in (files | {"config.yml": yaml.safe_dump(tree)}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("$FOLDER", str(folder)).replace("$TEACHER", "teacher"))
    shutil.copytree(MODEL, folder / "model")
    if "llms.teacher" in project.config:
        make_teacher(folder / "teacher")
