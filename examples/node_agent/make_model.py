"""Make model/: a small language model that knows how the agent's conversations go, and is careless in them.

It is supervised on conversations of its own kind: it opens the right contact in half of them and another one in some,
it guesses in others, and sometimes it does not say the number that it has read. So it gives the right number in four of
ten cases; the reinforcement learning of configs/finetune.yml starts from there.

`python -m examples.node_agent.make_model`, from the repository's root, takes a minute.
"""

import random
from pathlib import Path
from typing import Any

import torch
from examples.imitation import (
    ASSISTANT,
    END,
    UNKNOWN,
    USER,
    Course,
    loss_of_spoken,
    make_llama,
    make_tokenizer,
    write_model,
)
from examples.node_agent.contacts import NAMES, NUMBERS, WISHES
from transformers import LlamaForCausalLM

MODEL = Path(__file__).parent / "model"
COURSE, CONVERSATIONS_PER_STEP = Course(steps=500, learning_rate=3e-3, warmup_steps=30), 64
OPENS_THE_RIGHT_CONTACT, OPENS_ANOTHER, SAYS_WHAT_IT_READ = 0.5, 0.25, 0.7

SPECIAL = (END, USER, ASSISTANT, UNKNOWN)
WORDS = (*WISHES, "open", *NAMES, *(str(number) for number in range(1, NUMBERS + 1)))

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|> ' + message['content'] }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def conversation(dice: random.Random) -> str:
    """What a careless assistant says, as the chat template writes it; every contact may have every number."""
    name, luck = dice.choice(NAMES), dice.random()
    wish = f"{USER} {dice.choice(WISHES)} {name} {ASSISTANT}"
    read = str(dice.randint(1, NUMBERS))
    if luck >= OPENS_THE_RIGHT_CONTACT + OPENS_ANOTHER:
        return f"{wish} {read} {END}"
    opened = name if luck < OPENS_THE_RIGHT_CONTACT else dice.choice(NAMES)
    said = read if dice.random() < SAYS_WHAT_IT_READ else str(dice.randint(1, NUMBERS))
    return f"{wish} open {opened} {END} {USER} {read} {ASSISTANT} {said} {END}"


def loss_of(model: LlamaForCausalLM, tokenizer: Any, dice: random.Random) -> torch.Tensor:
    """The loss of one step's conversations."""
    return loss_of_spoken(model, tokenizer, [conversation(dice) for _ in range(CONVERSATIONS_PER_STEP)])


if __name__ == "__main__":
    write_model(MODEL, make_tokenizer(SPECIAL, WORDS, CHAT_TEMPLATE), make_llama, loss_of, COURSE)
