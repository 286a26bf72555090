"""Make model/: a small language model that packs suitcases but makes mistakes.

It is trained on such conversations with random towns and weather. Sometimes it guesses the town or the weather instead
of looking it up, and sometimes it packs the wrong clothes. So it gives the right answer in one of three cases, from
which the reinforcement learning of configs/finetune.yml starts.

`python -m examples.langgraph_agent.make_model`, from the repository's root, takes a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import random
from pathlib import Path

from examples.pretraining import ASSISTANT, END, TOOL, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

from suitcase.forecast import TOWNS, WORN
from suitcase.plans import PEOPLE

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=700, learning_rate=3e-3, warmup_steps=30)
LOOKS_UP_THE_TOWN, LOOKS_UP_THE_WEATHER, PACKS_WHAT_SUITS = 0.6, 0.6, 0.7

SPECIAL = (END, USER, ASSISTANT, TOOL, UNKNOWN)
CALL = '<tool_call> {{ "name": "{tool}", "arguments": {{ "{argument}": "{value}" }} }} </tool_call>'

# What the model said renders to the tokens that it sampled: a whole conversation is one sequence. The system prompt
# and the tools' schemas are for models that can read.
CHAT_TEMPLATE = """\
{%- for message in messages if message['role'] != 'system' -%}
{{ '<|' + message['role'] + '|> ' }}{{ message['content'] or '' }}
{%- for call in message['tool_calls'] or [] -%}
{{ '' if loop.first else ' ' }}<tool_call> { "name": "{{ call['function']['name'] }}", "arguments": {
{%- for name, value in call['function']['arguments'].items() %} "{{ name }}": "{{ value }}"{% endfor %} } } </tool_call>
{%- endfor %}{% if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def destination(person: str) -> str:
    """A call of the first tool."""
    return CALL.format(tool="destination", argument="person", value=person)


def weather(town: str) -> str:
    """A call of the second one."""
    return CALL.format(tool="weather", argument="town", value=town)


def vocabulary() -> tuple[str, ...]:
    """One token per word, and one per piece of JSON between two blanks."""
    calls = [*map(destination, PEOPLE), *map(weather, TOWNS)]
    pieces = sorted({piece for call in calls for piece in call.split()})
    return ("what", "does", "pack", *PEOPLE, *TOWNS, *WORN, *WORN.values(), *pieces)


def conversation(rng: random.Random) -> str:
    """A conversation of a careless packer in the chat template's format."""
    person, town, sky = rng.choice(PEOPLE), rng.choice(TOWNS), rng.choice(list(WORN))
    packed = rng.choice(list(WORN.values()))
    said = f"{USER} what does {person} pack {ASSISTANT}"
    if rng.random() < LOOKS_UP_THE_TOWN:
        said += f" {destination(person)} {END} {TOOL} {town} {ASSISTANT}"
        if rng.random() < LOOKS_UP_THE_WEATHER:
            said += f" {weather(town)} {END} {TOOL} {sky} {ASSISTANT}"
            packed = WORN[sky] if rng.random() < PACKS_WHAT_SUITS else packed
    return f"{said} {packed} {END}"


if __name__ == "__main__":
    write_chat_model(MODEL, make_tokenizer(SPECIAL, vocabulary(), CHAT_TEMPLATE), conversation, SCHEDULE)
