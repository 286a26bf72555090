"""Make model/: a small language model that talks like a shopkeeper but makes mistakes.

It is trained on such conversations: in half of them it asks for both prices at once, in some for one of them or for
another thing's, in others it guesses, and sometimes it adds wrongly. So it gives the right sum in one of three cases,
from which the reinforcement learning of configs/finetune.yml starts.

`python -m examples.adk_agent.make_model`, from the repository's root, takes a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import random
from pathlib import Path

from examples.pretraining import ASSISTANT, END, TOOL, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

from shopkeeper.prices import HIGHEST, ITEMS

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=700, learning_rate=3e-3, warmup_steps=30)
ASKS_FOR_BOTH, ASKS_FOR_ONE, ASKS_FOR_ANOTHER, ADDS_RIGHTLY = 0.5, 0.15, 0.2, 0.7

SPECIAL = (END, USER, ASSISTANT, TOOL, UNKNOWN)
CALL = '<tool_call> {{ "name": "price", "arguments": {{ "item": "{item}" }} }} </tool_call>'
RESULT = '{{ "result": {price} }}'
SUMS = range(2, 2 * HIGHEST + 1)

# What the model said renders to the tokens that it sampled: a whole conversation is one sequence. The system prompt
# and the tool's schema are for models that can read.
CHAT_TEMPLATE = """\
{%- for message in messages if message['role'] != 'system' -%}
{%- set content = (message['content'] or '') | replace('{', '{ ') | replace('}', ' }') -%}
{{ '<|' + message['role'] + '|> ' + content }}
{%- for call in message['tool_calls'] or [] -%}
{{ '' if loop.first else ' ' }}<tool_call> { "name": "{{ call['function']['name'] }}", "arguments": {
{%- for name, value in call['function']['arguments'].items() %} "{{ name }}": "{{ value }}"{% endfor %} } } </tool_call>
{%- endfor %}{% if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def vocabulary() -> tuple[str, ...]:
    """One token per word, and one per piece of JSON between two blanks."""
    texts = [CALL.format(item=item) for item in ITEMS] + [RESULT.format(price=1)]
    pieces = sorted({piece for text in texts for piece in text.split()} - {"1"})
    return ("and", *map(str, range(1, SUMS.stop)), *ITEMS, *pieces)


def conversation(rng: random.Random) -> str:
    """A conversation of a careless shopkeeper in the chat template's format; prices are random."""
    first, second = rng.sample(ITEMS, 2)
    asked, calls = f"{USER} {first} and {second} {ASSISTANT}", looked_up(first, second, rng)
    if not calls:
        return f"{asked} {rng.choice(SUMS)} {END}"
    read = [rng.randint(1, HIGHEST) for _ in calls]
    right = len(calls) > 1 and rng.random() < ADDS_RIGHTLY
    said = sum(read) if right else rng.choice(SUMS)
    results = " ".join(f"{TOOL} {RESULT.format(price=price)}" for price in read)
    called = " ".join(CALL.format(item=item) for item in calls)
    return f"{asked} {called} {END} {results} {ASSISTANT} {said} {END}"


def looked_up(first: str, second: str, rng: random.Random) -> list[str]:
    """The things whose price the shopkeeper asks for."""
    luck = rng.random()
    if luck < ASKS_FOR_BOTH:
        return [first, second]
    if luck < ASKS_FOR_BOTH + ASKS_FOR_ONE:
        return [first]
    if luck < ASKS_FOR_BOTH + ASKS_FOR_ONE + ASKS_FOR_ANOTHER:
        return [first, rng.choice(ITEMS)]
    return []


if __name__ == "__main__":
    write_chat_model(MODEL, make_tokenizer(SPECIAL, vocabulary(), CHAT_TEMPLATE), conversation, SCHEDULE)
