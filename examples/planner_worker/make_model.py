"""Make model/ and data/: a small language model that plans and adds, both with mistakes, and questions.

Of the plans 4 in 10 are right, and of the sums 4 in 10, from which the reinforcement learning of config.yml starts.

`python -m examples.planner_worker.make_model`, from the repository's root, takes half a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import json
import random
from pathlib import Path

from examples.pretraining import ASSISTANT, END, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

FOLDER = Path(__file__).parent
SCHEDULE = Schedule(steps=600, learning_rate=5e-3, warmup_steps=20)
NAMES, HIGHEST = ("ann", "bob", "eve", "joe"), 6
WORDS = ("plan", "add", "has", "and", "+", *NAMES, *map(str, range(2 * HIGHEST + 1)))
RIGHT, SLIPS = 0.4, (-2, -1, 1)
SPLITS = {"train": 200, "validation": 100}

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|> ' + message['content'] }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def question(rng: random.Random) -> tuple[str, int, int]:
    """A question in words, and its two numbers."""
    (one, other), a, b = rng.sample(NAMES, 2), rng.randint(0, HIGHEST), rng.randint(0, HIGHEST)
    return f"{one} has {a} and {other} has {b}", a, b


def conversation(rng: random.Random) -> str:
    """A call of the planner or of the worker; a wrong plan has one number twice, a wrong sum is a little off."""
    (text, a, b), right = question(rng), rng.random() < RIGHT
    if rng.choice(("plan", "add")) == "plan":
        a, b = (a, b) if right else rng.choice(((a, a), (b, b)))
        return f"{USER} plan {text} {ASSISTANT} {a} + {b} {END}"
    said = a + b if right else max(0, a + b + rng.choice(SLIPS))
    return f"{USER} add {a} + {b} {ASSISTANT} {said} {END}"


def questions() -> dict[str, list[dict[str, str]]]:
    """The rows of both files; no question is in both."""
    rng, known = random.Random(1), dict[str, str]()
    while len(known) < sum(SPLITS.values()):
        text, a, b = question(rng)
        known[text] = str(a + b)
    rows = [{"id": str(number), "question": text, "answer": known[text]} for number, text in enumerate(known)]
    return {"train": rows[: SPLITS["train"]], "validation": rows[SPLITS["train"] :]}


if __name__ == "__main__":
    for split, rows in questions().items():
        (FOLDER / "data" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = make_tokenizer((END, USER, ASSISTANT, UNKNOWN), WORDS, CHAT_TEMPLATE)
    write_chat_model(FOLDER / "model", tokenizer, conversation, SCHEDULE)
