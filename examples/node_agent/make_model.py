"""Make model/: a small language model for the agent's conversations that makes mistakes.

It is trained on such conversations: in half of them it opens the right contact, in some another one, in others it
guesses, and sometimes it does not answer with the number that it read. So it gives the right number in four of ten
cases, from which the reinforcement learning of configs/finetune.yml starts.

`python -m examples.node_agent.make_model`, from the repository's root, takes a minute.
The training loop is `examples/pretraining.py`, which all examples share.
"""

import random
from pathlib import Path

from examples.node_agent.contacts import NAMES, NUMBERS, VERBS
from examples.pretraining import ASSISTANT, END, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=500, learning_rate=3e-3, warmup_steps=30)
OPENS_THE_RIGHT_CONTACT, OPENS_ANOTHER, SAYS_WHAT_IT_READ = 0.5, 0.25, 0.7

SPECIAL = (END, USER, ASSISTANT, UNKNOWN)
WORDS = (*VERBS, "open", *NAMES, *(str(number) for number in range(1, NUMBERS + 1)))

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|> ' + message['content'] }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def conversation(rng: random.Random) -> str:
    """A conversation of a careless assistant in the chat template's format; numbers are random."""
    name, luck = rng.choice(NAMES), rng.random()
    request = f"{USER} {rng.choice(VERBS)} {name} {ASSISTANT}"
    read = str(rng.randint(1, NUMBERS))
    if luck >= OPENS_THE_RIGHT_CONTACT + OPENS_ANOTHER:
        return f"{request} {read} {END}"
    opened = name if luck < OPENS_THE_RIGHT_CONTACT else rng.choice(NAMES)
    said = read if rng.random() < SAYS_WHAT_IT_READ else str(rng.randint(1, NUMBERS))
    return f"{request} open {opened} {END} {USER} {read} {ASSISTANT} {said} {END}"


if __name__ == "__main__":
    write_chat_model(MODEL, make_tokenizer(SPECIAL, WORDS, CHAT_TEMPLATE), conversation, SCHEDULE)
