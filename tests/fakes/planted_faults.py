"""Planted faults: one for each cause that must come first, and two of them at once."""

import asyncio
import json
import random
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import yaml

from fakes.planted_project import (
    CLASSES,
    COLOURS,
    DONE,
    FILLERS,
    KINDS,
    NOISE,
    Plant,
    PlantedProject,
    Score,
    colour_of,
    right,
)
from nat.builder.context import Context
from nat.cli.commands.finetune import summary_text
from nat.cli.main import exit_code
from nat.config.sources import deep_merge
from nat.errors import RunFailed
from nat.finetuning.progress import RunProgress


class Noise:
    """Draws that depend on the answer and how often it was scored, so not on the order of concurrent rollouts."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def drawn(self, question: str, answer: str) -> float:
        key = f"{question} {answer}"
        self._seen[key] += 1
        return random.Random(f"{key} {self._seen[key]}").gauss(0, 0.7)

    def coin(self, question: str, answer: str) -> float:
        return float(self.drawn(question, answer) > 0)

    def added(self, question: str, answer: str) -> float:
        return right(question, answer) + self.drawn(question, answer)


def half(question: str, answer: str) -> float:
    return 0.5


PHRASE = (*FILLERS, *FILLERS, COLOURS[0], DONE)


def exact_phrase(question: str, answer: str) -> float:
    return float(answer.split() == [*PHRASE])


def any_answer(question: str, answer: str) -> float:
    return float(DONE in answer.split())


def words(question: str, answer: str) -> float:
    return min(1.0, len(answer.split()) / 16)


def shade(question: str, answer: str) -> float:
    said = [COLOURS.index(word) for word in answer.split() if word in COLOURS]
    return 1 - said[0] / (len(COLOURS) - 1) if said else 0.0


async def mostly_top_p(question, ask):
    return await (ask(question) if question.startswith("apple") else ask(question, top_p=0.9))


async def mostly_unseen(question, ask):
    """Seven of eight questions go to the model past the client; if it saw more of them, it may learn all the same."""
    seen = question.startswith("apple") and question.endswith("0")
    return await (ask(question) if seen else asked_past_the_client(question, ask))


async def asked_past_the_client(question, ask):
    def post() -> str:
        body = {"model": ask.client.model_name, "messages": [{"role": "user", "content": question}]}
        headers = {"Authorization": f"Bearer {ask.client.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{ask.client.base_url}chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)["choices"][0]["message"]["content"]

    return await asyncio.to_thread(post)


async def planner_and_speaker(question, ask):
    with Context.get().push_active_function("planner", question):
        await ask(f"{question} so")
    with Context.get().push_active_function("speaker", question):
        return await ask(question)


PLANTS = {
    "rate_too_low": Plant(training={"learning_rate": 3e-6}, epochs=3),
    "rate_too_high": Plant(training={"learning_rate": 0.1, "max_kl": None}),
    "constant_score": Plant(score=half),
    "noisy_score": Plant(score=Noise().added),
    "too_hard": Plant(score=exact_phrase),
    "too_easy": Plant(score=any_answer),
    "independent_score": Plant(score=Noise().coin),
    "truncation": Plant(llm={"max_tokens": 1}),
    "sampling_changed": Plant(agent=mostly_top_p, epochs=3),
    "calls_lost": Plant(agent=mostly_unseen, epochs=3),
    "wrong_target": Plant(agent=planner_and_speaker, finetuning={"target_functions": ["planner"]}, epochs=5),
    "few_groups": Plant(score=shade, classes=1, per_class=1, generations=2, epochs=4),
    "few_steps": Plant(per_class=5, training={"steps_per_batch": 1}, epochs=3),
    "held_out_differs": Plant(per_class=4, held_out=KINDS[1], epochs=8),
    "rewards_length": Plant(per_class=4, score=words, llm={"max_tokens": 20}),
}
"""One fault each, under the name of the cause that must come first."""


async def colour_alone(question, ask):
    return (await ask(question)).removesuffix(f" {DONE}")


async def with_the_colour(question, ask):
    return await ask(f"{question} {colour_of(question)}")


async def words_of_its_own(question, ask):
    await ask(question)
    return FILLERS[0]


async def with_a_broken_tool(question, ask):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "ConnectionError: refused"},
    ]
    reply = await ask.client.chat.completions.create(model=ask.client.model_name, messages=messages)
    return reply.choices[0].message.content or ""


async def late_for_some(question, ask):
    if question.split(maxsplit=1)[0] in CLASSES[:2]:
        raise TimeoutError("no answer within 60 s")
    return await ask(question)


def colour_with_a_space(question: str) -> str:
    return f"{colour_of(question)} "


async def stopped_at_the_last_word(question, ask):
    return await ask(question, stop=[DONE])


def colour_and_the_end(question: str) -> str:
    return f"{colour_of(question)} {DONE}"


def never(question: str, answer: str) -> float:
    return 0.0


def equal_to_the_row(question: str, answer: str) -> float:
    return float(answer == colour_with_a_space(question))


OF_PROJECTS = {
    "the score reads another field": ("right_scored_lowest", Plant(score=never, agent=colour_alone)),
    "answers of the dataset end with a space": (
        "right_scored_lowest",
        Plant(score=equal_to_the_row, agent=colour_alone, answer=colour_with_a_space),
    ),
    "the prompt shows the answer": ("answer_shown", Plant(score=any_answer, agent=with_the_colour)),
    "the agent ignores the model": ("output_alone", Plant(agent=words_of_its_own)),
    "a stop word is inside each answer": (
        "stopped_inside",
        Plant(agent=stopped_at_the_last_word, answer=colour_and_the_end),
    ),
    "the system prompt is dropped": (
        "prompt_not_sent",
        Plant(score=exact_phrase, workflow={"system_prompt": "Say the colour of the thing, then done."}),
    ),
    "a tool always fails": ("tool_fails", Plant(score=exact_phrase, agent=with_a_broken_tool)),
    "half of the rollouts time out": ("rollouts_failed", Plant(agent=late_for_some)),
    "a judge prefers the longer answer": ("rewards_length", PLANTS["rewards_length"]),
}
"""Mistakes of real projects, and the cause that must come first."""


def pair_of(one: Plant, other: Plant) -> Plant:
    """Both faults at once: two scores are averaged, two agents share the examples; the smaller number counts."""
    healthy, both = Plant(), {}
    for name in (field.name for field in fields(Plant)):
        usual, first, second = (getattr(plant, name) for plant in (healthy, one, other))
        changed = [value for value in (first, second) if value != usual]
        if isinstance(usual, dict):
            both[name] = first | second
        elif len(changed) < 2 or isinstance(usual, tuple):
            both[name] = next(iter(changed), usual)
        else:
            join: Callable[..., Any] = {"score": _average, "agent": _shared}.get(name, min)
            both[name] = join(*changed)
    return replace(healthy, **both)


def _average(first: Score, second: Score) -> Score:
    return lambda question, answer: (first(question, answer) + second(question, answer)) / 2


def _shared(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """The first for every other class of examples, the second for the rest."""

    def chosen(question: str, *args: Any) -> Any:
        place = CLASSES.index(question.split(maxsplit=1)[0])
        return (second if place % 2 else first)(question, *args)

    return chosen


PAIRS = {f"{one} + {other}": pair_of(PLANTS[one], PLANTS[other]) for one, other in combinations(PLANTS, 2)}
"""All pairs, under the names of their causes."""


class Messages(RunProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def with_settings(project: PlantedProject, settings: str) -> None:
    """Paste the YAML of a remedy into the project's file, and give the demonstrations that it asks for.

    A model that has only ever said colours takes more epochs of them than a pretrained one.
    """
    pasted = yaml.safe_load(settings)
    if "phases" in pasted.get("finetuning", {}):
        del project.config["finetuning"]["num_epochs"]
        pasted["finetuning"]["phases"][0]["num_epochs"] = 40
        questions = [f"{name} {word}" for name in CLASSES for word in NOISE]
        turns = [[("user", question), ("assistant", " ".join(PHRASE))] for question in questions]
        rows = [{"messages": [{"role": role, "content": text} for role, text in each]} for each in turns]
        file = project.folder / "demonstrations.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        pasted["trajectory_builders"]["demonstrations"]["file_path"] = str(file)
    project.config = deep_merge(project.config, pasted)


async def diagnosed(project: PlantedProject, capsys) -> tuple[dict, str]:
    """What `nat diagnose --json` says about a run of the project, and what `nat finetune` showed at its end."""
    progress = Messages()
    try:
        shown = summary_text(await project.run(progress), project.folder / "config.yml")
    except RunFailed as error:
        shown = "\n".join([*progress.texts, str(error)])
    capsys.readouterr()
    assert await asyncio.to_thread(exit_code, ["--log-level", "error", "diagnose", str(project.run_dir), "--json"]) == 0
    return json.loads(capsys.readouterr().out), shown
