"""Make model/: a small language model that writes the format of the toolkit's `react_agent`, but makes mistakes.

It is trained on such conversations with random platforms. It looks up a platform for most questions of one wording and
for fewer of the others, sometimes that of another town, and it may name a platform that it did not read. From that the
reinforcement learning of configs/finetune.yml starts.

`python -m examples.toolkit_react_agent.make_model`, from the repository's root, takes a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import random
from pathlib import Path

from examples.pretraining import ASSISTANT, END, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model
from examples.toolkit_react_agent.timetable import PLATFORMS, QUESTIONS, TOWNS

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=600, learning_rate=5e-3, warmup_steps=30)
LOOKS_UP = dict(zip(QUESTIONS, (0.7, 0.4, 0.4), strict=True))
TAKES_THE_TOWN, SAYS_WHAT_IT_READ = 0.85, 0.85

SPECIAL = (END, USER, ASSISTANT, UNKNOWN)
ASK = "Previous conversation history: Question: {question}"
CALL = 'Thought: look up {town} Action: station__departure Action Input: {{ "town": "{town}" }} Observation:'
ANSWER = "Thought: it is {read} Final Answer: {platform}"
GUESS = "Thought: I know Final Answer: {platform}"

# The system prompt explains the format and the tools to models that can read.
CHAT_TEMPLATE = """\
{%- for message in messages if message['role'] != 'system' -%}
{{ '<|' + message['role'] + '|> ' + message['content'] | trim }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def vocabulary() -> tuple[str, ...]:
    """One token per word."""
    texts = [ASK, *QUESTIONS, CALL.format(town="{town}"), ANSWER, GUESS, *TOWNS, *(f'"{town}"' for town in TOWNS)]
    words = {word for text in texts for word in text.split() if not word.strip('"').startswith("{") or word == "{"}
    return (*sorted(words), *(str(number) for number in range(1, PLATFORMS + 1)))


def conversation(rng: random.Random) -> str:
    """A conversation of a careless clerk in the chat template's format."""
    town, wording, read = rng.choice(TOWNS), rng.choice(QUESTIONS), str(rng.randint(1, PLATFORMS))
    said = f"{USER} {ASK.format(question=wording.format(town=town))} {ASSISTANT}"
    guess = str(rng.randint(1, PLATFORMS))
    if rng.random() >= LOOKS_UP[wording]:
        return f"{said} {GUESS.format(platform=guess)} {END}"
    asked = town if rng.random() < TAKES_THE_TOWN else rng.choice(TOWNS)
    told = read if rng.random() < SAYS_WHAT_IT_READ else guess
    answer = ANSWER.format(read=read, platform=told)
    return f"{said} {CALL.format(town=asked)} {END} {USER} {read} {ASSISTANT} {answer} {END}"


if __name__ == "__main__":
    write_chat_model(MODEL, make_tokenizer(SPECIAL, vocabulary(), CHAT_TEMPLATE), conversation, SCHEDULE)
