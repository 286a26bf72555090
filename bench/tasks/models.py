"""Make a task's data and its tiny model, which has seen careless conversations.

`python -m bench.tasks.models TASK FOLDER` writes both; `--width` makes wider models, to see how the best learning
rate changes with it.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.tasks.agents import NUMBERS, TURNS
from examples.pretraining import (
    ASSISTANT,
    CONVERSATIONS_PER_STEP,
    END,
    UNKNOWN,
    USER,
    Schedule,
    assistant_loss,
    make_llama,
    make_tokenizer,
    write_model,
)

LETTERS, SORTED = tuple("abcdefghijkl"), 6
NAMES = (
    "anna",
    "boris",
    "clara",
    "david",
    "elena",
    "frank",
    "gina",
    "hugo",
    "iris",
    "jonas",
    "karin",
    "lukas",
    "mona",
    "nils",
    "olga",
    "paul",
)
VERBS = ("dial", "ring", "call", "phone")
DIGITS = tuple("0123456789")
NUMBER_OF = {name: (str(7 * n % 10), str((3 * n + n // 10 + 1) % 10)) for n, name in enumerate(NAMES)}
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|> ' + message['content'] }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


class Task(NamedTuple):
    """What makes a task: its words, careless conversations, and rows of question and answer."""

    words: tuple[str, ...]
    conversation: Callable[[random.Random], str]
    rows: Callable[[], tuple[list[tuple[str, str]], list[tuple[str, str]]]]
    """Training rows and held-out rows."""
    workflow: str
    evaluator: str
    max_tokens: int
    steps: int
    """Steps of pretraining."""


def guessing(rng: random.Random) -> str:
    """Guesses that often forget what was said before."""
    secret, low, high, text = rng.randint(1, NUMBERS), 1, NUMBERS, f"{USER} not {rng.randint(1, NUMBERS)}"
    for _ in range(TURNS):
        said = rng.randint(low, high) if rng.random() < 0.55 else rng.randint(1, NUMBERS)
        text += f" {ASSISTANT} {said} {END}"
        if said == secret:
            break
        low, high = (max(low, said + 1), high) if said < secret else (low, min(high, said - 1))
        text += f" {USER} {'higher' if said < secret else 'lower'}"
    return text


def ordering(rng: random.Random) -> str:
    """Sort, but take any of the letters that are left every other time."""
    asked = rng.sample(LETTERS, SORTED)
    left, said = sorted(asked), []
    while left:
        said.append(left.pop(0 if rng.random() < 0.4 else rng.randrange(len(left))))
    return f"{USER} {' '.join(asked)} {ASSISTANT} {' '.join(said)} {END}"


def dialing(rng: random.Random) -> str:
    """Guess both digits; each is right a little more often than by chance. Or repeat them, which is certain.

    Without the second kind no digit gets more than .58, whatever the layers below the embeddings do: LoRA leaves those
    as they are, and could not learn the task.
    """
    if rng.random() < 0.5:
        told = " ".join(rng.choices(DIGITS, k=2))
        return f"{USER} {told} {ASSISTANT} {told} {END}"
    name = rng.choice(NAMES)
    said = [digit if rng.random() < 0.3 else rng.choice(DIGITS) for digit in NUMBER_OF[name]]
    return f"{USER} {rng.choice(VERBS)} {name} {ASSISTANT} {' '.join(said)} {END}"


def guess_rows() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All pairs of a number and a hint at what it is not.

    With few rows, the model learns by heart which number comes with which hint.
    """
    rng = random.Random(1)
    pairs = [(secret, hint) for secret in range(1, NUMBERS + 1) for hint in range(1, NUMBERS + 1) if secret != hint]
    rows = [(f"{secret} {hint}", str(secret)) for secret, hint in rng.sample(pairs, len(pairs))]
    return rows[:512], rows[512:]


def order_rows() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Random letters; no set of letters is in both."""
    rng, seen = random.Random(1), dict[str, str]()
    while len(seen) < 260:
        asked = rng.sample(LETTERS, SORTED)
        seen.setdefault(" ".join(sorted(asked)), " ".join(asked))
    rows = [(asked, answer) for answer, asked in seen.items()]
    return rows[:64], rows[64:]


def dial_rows() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Two of the verbs are held out."""
    rows = [(f"{verb} {name}", " ".join(NUMBER_OF[name])) for verb in VERBS for name in NAMES]
    return rows[: 2 * len(NAMES)], rows[2 * len(NAMES) :] * 4


TASKS = {
    "guess": Task(
        words=("not", "higher", "lower", *(str(n) for n in range(1, NUMBERS + 1))),
        conversation=guessing,
        rows=guess_rows,
        workflow="bench_guess",
        evaluator="exact_match",
        max_tokens=2,
        steps=900,
    ),
    "order": Task(LETTERS, ordering, order_rows, "bench_ask", "bench_places", SORTED + 1, 700),
    "dial": Task((*VERBS, *NAMES, *DIGITS), dialing, dial_rows, "bench_ask", "exact_match", 3, 900),
}


def make_task(task: Task, folder: Path, width: int) -> None:
    """Write `train.jsonl`, `held_out.jsonl` and `model/`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "held_out"), task.rows(), strict=True):
        (folder / f"{name}.jsonl").write_text("".join(_lines(rows)))
    tokenizer = make_tokenizer((END, USER, ASSISTANT, UNKNOWN), task.words, CHAT_TEMPLATE)

    def loss_of(model: Any, tokenizer: Any, rng: random.Random) -> Any:
        return assistant_loss(model, tokenizer, [task.conversation(rng) for _ in range(CONVERSATIONS_PER_STEP)])

    schedule = Schedule(steps=task.steps, learning_rate=3e-3 * (64 / width) ** 0.5, warmup_steps=30)
    write_model(folder / "model", tokenizer, lambda tokenizer: make_llama(tokenizer, width), loss_of, schedule)


def _lines(rows: list[tuple[str, str]]) -> Iterator[str]:
    for number, (question, answer) in enumerate(rows):
        yield json.dumps({"id": str(number), "question": question, "answer": answer}) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.tasks.models", description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    make_task(TASKS[options.task], options.folder, options.width)
