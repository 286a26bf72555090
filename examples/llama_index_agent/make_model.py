"""Make model/: a small language model that talks like a librarian but makes mistakes.

It is trained on such conversations: in half of them it looks up the right book, in some another one, in others it
guesses, and sometimes it does not answer with the shelf that it read. So it gives the right shelf in four of ten cases,
from which the reinforcement learning of configs/finetune.yml starts.

`python -m examples.llama_index_agent.make_model`, from the repository's root, takes a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import random
from pathlib import Path

from examples.pretraining import ASSISTANT, END, TOOL, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

from librarian.catalogue import QUESTIONS, SHELVES, TITLES

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=600, learning_rate=3e-3, warmup_steps=30)
LOOKS_UP_THE_RIGHT_BOOK, LOOKS_UP_ANOTHER, SAYS_WHAT_IT_READ = 0.5, 0.25, 0.7

SPECIAL = (END, USER, ASSISTANT, TOOL, UNKNOWN)
CALL = '<tool_call> {{ "name": "find", "arguments": {{ "title": "{title}" }} }} </tool_call>'
NUMBERS = tuple(str(shelf) for shelf in range(1, SHELVES + 1))

# What the model said renders to the tokens that it sampled: a whole conversation is one sequence. The system prompt
# and the tool's schema are for models that can read.
CHAT_TEMPLATE = """\
{%- for message in messages if message['role'] != 'system' -%}
{{ '<|' + message['role'] + '|> ' }}{{ message['content'] or '' }}
{%- for call in message['tool_calls'] or [] -%}
<tool_call> { "name": "{{ call['function']['name'] }}", "arguments": {
{%- for name, value in call['function']['arguments'].items() %} "{{ name }}": "{{ value }}"{% endfor %} } } </tool_call>
{%- endfor %}{% if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def vocabulary() -> tuple[str, ...]:
    """One token per word, and one per piece of JSON between two blanks."""
    pieces = sorted({piece for title in TITLES for piece in CALL.format(title=title).split()})
    return (*" ".join(QUESTIONS).split(), *NUMBERS, *TITLES, *pieces)


def conversation(rng: random.Random) -> str:
    """A conversation of a careless librarian in the chat template's format; books are on random shelves."""
    title, luck = rng.choice(TITLES), rng.random()
    asked = f"{USER} {rng.choice(QUESTIONS)} {title} {ASSISTANT}"
    if luck >= LOOKS_UP_THE_RIGHT_BOOK + LOOKS_UP_ANOTHER:
        return f"{asked} {rng.choice(NUMBERS)} {END}"
    call = CALL.format(title=title if luck < LOOKS_UP_THE_RIGHT_BOOK else rng.choice(TITLES))
    read = rng.choice(NUMBERS)
    said = read if rng.random() < SAYS_WHAT_IT_READ else rng.choice(NUMBERS)
    return f"{asked} {call} {END} {TOOL} {read} {ASSISTANT} {said} {END}"


if __name__ == "__main__":
    write_chat_model(MODEL, make_tokenizer(SPECIAL, vocabulary(), CHAT_TEMPLATE), conversation, SCHEDULE)
