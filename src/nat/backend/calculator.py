"""Make the tiny model of a new project (`nat init`): it adds two numbers with a tool, and makes mistakes.

It is trained on such conversations: in half of them it calls the tool with the right numbers, in some with a wrong one,
in others it guesses, and sometimes it does not say what the tool returned. So it gives the right sum in about one of
three cases, from which reinforcement learning starts.

    python -m nat.backend.calculator FOLDER --tool add [--answer_tool final_answer]
"""

import argparse
import itertools
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from nat.backend.pretraining import ASSISTANT, END, TOOL, UNKNOWN, USER, Schedule, make_tokenizer, write_chat_model

SCHEDULE = Schedule(steps=1000, learning_rate=5e-3, warmup_steps=30, conversations_per_step=32)
HIGHEST = 20
"""The highest number of a question."""
_PER_LINE = 500
CALLS_RIGHTLY, CALLS_WRONGLY, SAYS_WHAT_IT_READ, INSTRUCTED = 0.5, 0.25, 0.8, 0.5

SPECIAL = (END, USER, ASSISTANT, TOOL, UNKNOWN)
NUMBERS = tuple(str(number) for number in range(2 * HIGHEST + 1))
NUMBER = r"(?<!\w)\d+(?!\w)"
"""A word of digits alone: ids of calls have digits, too."""

# Only numbers and JSON are read: tokens that the model said render to the same ids, whatever white space the agent
# changed. A system message, and a user's without a number, is an instruction, whose words are one unknown token.
# smolagents writes calls and results as texts; the last `}]` of its call closes what surrounds it.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- set content = message['content'] or '' -%}
{%- set number = content | select('in', '0123456789') | first is defined -%}
{%- if message['role'] == 'assistant' -%}
<|assistant|>
{%- set written = content.split("'function': ")[1:] | last -%}
{%- if written %}<tool_call>{{ written[:-2] | replace("'", '"') }}</tool_call>
{%- else %} {{ content }}{% endif -%}
{%- for call in message['tool_calls'] or [] -%}
{%- set function = call['function'] -%}
<tool_call>{"name": "{{ function['name'] }}", "arguments": {{ function['arguments'] | tojson }}}</tool_call>
{%- endfor %}<|end|>
{%- elif message['role'] == 'tool' or content.startswith('Observation:') -%}
<|tool|> {{ content }}
{%- elif message['role'] == 'user' and number -%}
<|user|> {{ content }}
{%- else -%}
<|instruction|> {{ content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


class Tools(NamedTuple):
    """The tools of the agent, by the names that the model sees."""

    add: str
    answer: str | None
    """The tool whose call is the agent's answer; None if the answer is text."""


def call(tool: str, **arguments: int) -> str:
    """A call, with a blank between two tokens."""
    given = " , ".join(f'"{name}": {value}' for name, value in arguments.items())
    return f'<tool_call> {{ "name": "{tool}" , "arguments": {{ {given} }} }} </tool_call>'


def conversation(rng: random.Random, tools: Tools) -> str:
    """A conversation of a careless calculator in the chat template's format; sums are random."""
    a, b, result, luck = rng.randint(1, HIGHEST), rng.randint(1, HIGHEST), rng.choice(NUMBERS), rng.random()
    said = result if rng.random() < SAYS_WHAT_IT_READ else rng.choice(NUMBERS)
    answer = said if tools.answer is None else call(tools.answer, answer=int(said))
    told, reminded = (f"{UNKNOWN} " * (rng.random() < INSTRUCTED) for _ in range(2))
    asked = f"{told}{USER} {a} + {b} {ASSISTANT}"
    if luck > CALLS_RIGHTLY + CALLS_WRONGLY:
        return f"{asked} {answer} {END}"
    second = b if luck < CALLS_RIGHTLY else rng.randint(1, HIGHEST)
    return f"{asked} {call(tools.add, a=a, b=second)} {END} {TOOL} {result} {reminded}{ASSISTANT} {answer} {END}"


def calculator_tokenizer(tools: Tools) -> Any:
    """A tokenizer that finds numbers and pieces of JSON in a text, and ignores the rest."""
    calls = [call(tools.add, a=1, b=1), *([] if tools.answer is None else [call(tools.answer, answer=1)])]
    pieces = sorted({piece for text in calls for piece in text.split()} - {"1"}, reverse=True)
    tokenizer = make_tokenizer(SPECIAL, ("+", *NUMBERS, *pieces), CHAT_TEMPLATE)
    known = "|".join([r"<\|instruction\|>[\s\S]*", NUMBER, r"\+", *map(re.escape, pieces)])
    tokenizer.backend_tokenizer.pre_tokenizer = Split(Regex(known), behavior="removed", invert=True)
    return tokenizer


def main() -> None:
    """Write the model with its tokenizer into a folder; print how many of the conversations it has seen."""
    parser = argparse.ArgumentParser(prog="python -m nat.backend.calculator")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--answer_tool")
    chosen = parser.parse_args()
    tools = Tools(chosen.tool, chosen.answer_tool)
    seen, total = itertools.count(1), SCHEDULE.steps * SCHEDULE.conversations_per_step

    def seen_conversation(rng: random.Random) -> str:
        if (place := next(seen)) % _PER_LINE == 0:
            print(f"{place}/{total}", flush=True)  # noqa: T201 - for the parent process
        return conversation(rng, tools)

    write_chat_model(chosen.folder, calculator_tokenizer(tools), seen_conversation, SCHEDULE)


if __name__ == "__main__":
    main()
