"""The calls of one rollout without what they repeat.

Each call of a conversation sends all messages and tokens before it, so a rollout of T turns would take T²/2 of them.
"""

from dataclasses import dataclass, field
from typing import Any

from nat.data_models.llm_call import LLMCall

_PLACE = "kept"
"""Key of the only message of a lighter call, whose value is the call's number."""

_REMEMBERED = 4
"""Earlier calls that a prompt is compared with: conversations may grow side by side."""

_MOST_TOKENS = 2**27
"""Of all prompts of a rollout together, a gigabyte; each of a few bytes may repeat a long one."""


@dataclass
class KeptCalls:
    """What the calls have in common, each once; JSON holds all of it."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[list[dict[str, Any]]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Of each call: the numbers of its messages and tools, and its prompt as the number of an earlier call, how many of
    that call's tokens it begins with, and the tokens after these."""

    def __post_init__(self) -> None:
        self._places: dict[int, int] = {}
        self._sequences: list[list[int]] = []
        """Prompt and answer of each call."""
        self._num_tokens = 0

    @property
    def record(self) -> dict[str, Any]:
        """The fields."""
        return {"messages": self.messages, "tools": self.tools, "calls": self.calls}

    def lighter(self, call: LLMCall) -> LLMCall:
        """The call without messages, tools and prompt; equal messages must be the same object."""
        prompt, offered = call.prompt_token_ids, call.tools
        kept = {
            "messages": [self._place(message, self.messages) for message in call.messages],
            "tools": None if offered is None else self._place(offered, self.tools),
            "prompt": None if prompt is None else self._continued(prompt),
        }
        self.calls.append(kept)
        self._sequences.append([*(prompt or ()), *(call.token_ids or ())])
        number = [{_PLACE: len(self.calls) - 1}]
        return call.model_copy(update={"messages": number, "tools": None, "prompt_token_ids": None})

    def restore(self, call: LLMCall) -> None:
        """Put back what `lighter` left out; calls come in the same order.

        Raises:
            ValueError: they do not, or the prompts are longer than those of any rollout.

        """
        if len(call.messages) != 1 or call.messages[0].keys() != {_PLACE}:
            return
        if (number := call.messages[0][_PLACE]) != len(self._sequences):
            raise ValueError(f"call {len(self._sequences)} has the number {number!r}")
        kept = self.calls[number]
        call.messages = [self.messages[place] for place in kept["messages"]]
        call.tools = None if kept["tools"] is None else self.tools[kept["tools"]]
        if kept["prompt"] is not None:
            earlier, size, rest = kept["prompt"]
            call.prompt_token_ids = (self._sequences[earlier][:size] if size else []) + rest
            self._num_tokens += len(call.prompt_token_ids)
            if self._num_tokens > _MOST_TOKENS:
                raise ValueError(f"its prompts have more than {_MOST_TOKENS} tokens")
        self._sequences.append([*(call.prompt_token_ids or ()), *(call.token_ids or ())])

    def _place(self, value: Any, table: list[Any]) -> int:
        if id(value) not in self._places:
            self._places[id(value)] = len(table)
            table.append(value)
        return self._places[id(value)]

    def _continued(self, prompt: list[int]) -> tuple[int, int, list[int]]:
        """The earlier call with whose tokens the prompt begins, how many they are, and the tokens after them."""
        newest = range(max(0, len(self._sequences) - _REMEMBERED), len(self._sequences))
        size, earlier = max(((_common(self._sequences[each], prompt), each) for each in newest), default=(0, 0))
        return earlier, size, prompt[size:]


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:  # slices are compared in C
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
