"""Planted faults, each with the cause that must come first."""

import asyncio
import json
import random
from collections import Counter

import httpx

from fakes.planted_project import (
    CLASSES,
    COLOURS,
    DONE,
    FILLERS,
    KINDS,
    Plant,
    PlantedProject,
    right,
)
from nat.builder.context import Context
from nat.cli.commands.finetune import summary_text
from nat.cli.main import exit_code
from nat.data_models.finetuning import FinetuneRunConfig
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


async def mostly_top_p(question, ask):
    return await (ask(question) if question.startswith("apple") else ask(question, top_p=0.9))


async def mostly_unseen(question, ask):
    """Seven of eight questions go to the model past the client; if it saw more of them, it may learn all the same."""
    seen = question.startswith("apple") and question.endswith("0")
    return await (ask(question) if seen else asked_past_the_client(question, ask))


async def asked_past_the_client(question, ask):
    body = {"model": ask.client.model_name, "messages": [{"role": "user", "content": question}]}
    headers = {"Authorization": f"Bearer {ask.client.api_key}"}
    async with httpx.AsyncClient(timeout=30) as http:
        reply = await http.post(f"{ask.client.base_url}chat/completions", json=body, headers=headers)
    return reply.json()["choices"][0]["message"]["content"]


async def planner_and_speaker(question, ask):
    with Context.get().push_active_function("planner", question):
        await ask(f"{question} so")
    with Context.get().push_active_function("speaker", question):
        return await ask(question)


PLANTS = {
    "rate_too_low": Plant(training={"learning_rate": 3e-6}, epochs=3),
    "rate_too_high": Plant(training={"learning_rate": 0.1, "max_kl": None}),
    "constant_score": Plant(score=half),
    "too_hard": Plant(score=exact_phrase),
    "too_easy": Plant(score=any_answer),
    "independent_score": Plant(score=Noise().coin),
    "truncation": Plant(llm={"max_tokens": 1}),
    "sampling_changed": Plant(agent=mostly_top_p, epochs=3),
    "calls_lost": Plant(agent=mostly_unseen, epochs=3),
    "wrong_target": Plant(agent=planner_and_speaker, finetuning={"target_functions": ["planner"]}, epochs=5),
    "few_steps": Plant(per_class=5, training={"steps_per_batch": 1}, epochs=3),
    "held_out_differs": Plant(per_class=4, held_out=KINDS[1], epochs=8),
    "rewards_length": Plant(per_class=4, score=words, llm={"max_tokens": 20}),
}
"""One fault each, under the name of the cause that must come first; noise is one that depends on chance."""


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


OF_PROJECTS = {
    "a tool always fails": ("rollouts_failed", Plant(score=exact_phrase, agent=with_a_broken_tool)),
    "half of the rollouts time out": ("rollouts_failed", Plant(agent=late_for_some)),
    "a noisy judge": ("independent_score", Plant(score=Noise().added)),
}
"""Mistakes of real projects, and the cause that must come first."""


class Messages(RunProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


async def diagnosed(project: PlantedProject, capsys) -> tuple[dict, str]:
    """What `nat diagnose --json` says about a run of the project, and what `nat finetune` showed at its end."""
    progress = Messages()
    try:
        shown = summary_text(await project.run(progress), FinetuneRunConfig(config_file=project.folder / "config.yml"))
    except RunFailed as error:
        shown = "\n".join([*progress.texts, str(error)])
    capsys.readouterr()
    assert await asyncio.to_thread(exit_code, ["--log-level", "error", "diagnose", str(project.run_dir), "--json"]) == 0
    return json.loads(capsys.readouterr().out), shown
