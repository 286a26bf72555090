"""Sort the LLM calls of one rollout into a graph of conversations.

A call continues a conversation of its model if its prompt begins with all of it, the last answer included: by
token ids where they are known, by messages where they are not. What does not continue one (a sub-agent, a retry, a
fork, a rewritten history) begins a new one, so no call is dropped and no two conversations are merged. Where a call
could continue several, it continues the longest, and of equal ones the earliest.

Messages are looked up in a tree of all earlier ones, so the cost of a call does not grow with the number of
conversations. Training rows are merged on the way, since a row shows which conversation a call continues.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nat.finetuning.trajectories.calls import SeenCall, tokens_of_call
from nat.runs.rollouts import AnswerRecord, Beginning, ConversationRecord
from nat.wire.json import parse_json
from nat.wire.rows import CallTokens, OpenRows
from nat.wire.training import Span, TrainingRow

Message = dict[str, Any]
Essence = tuple[Any, ...]

_SYSTEM = frozenset({"system", "developer"})


@dataclass
class Thread:
    """Messages in order, and how it began; `sampled` maps positions to the calls that sampled those messages."""

    messages: list[Message] = field(default_factory=list)
    sampled: dict[int, SeenCall] = field(default_factory=dict)
    began: Beginning = Beginning.FIRST
    parent: int | None = None
    """Number of the conversation that it shares a beginning with."""
    shared: int = 0
    """Messages that it has in common with its parent."""
    spans: dict[int, Span] = field(default_factory=dict)
    """The tokens of a sampled message, by its position."""

    def record(self, rows: Sequence[TrainingRow], tools: Sequence[list[dict[str, Any]]]) -> ConversationRecord:
        """Its record; `rows` are those of the rollout that are recorded, `tools` the lists that it offered."""
        places = {id(span): (row, at) for row, each in enumerate(rows) for at, span in enumerate(each.spans)}
        return ConversationRecord(
            began=self.began,
            parent=self.parent,
            shared=self.shared,
            messages=len(self.messages),
            answers=[
                AnswerRecord(message=position, row=row, span=span)
                for position in self.sampled
                for row, span in [places.get(id(self.spans.get(position)), (None, None))]
            ],
            tools=tools.index(self.tools) if self.tools else None,
        )

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the last request offered."""
        last = self.sampled[max(self.sampled)]
        return last.call.tools or []

    def is_continued_by(self, messages: Sequence[Message]) -> bool:
        """True if the messages begin with the same roles, whatever their texts."""
        roles = [message.get("role") for message in self.messages]
        return [message.get("role") for message in messages[: len(roles)]] == roles

    def add(self, seen: SeenCall) -> None:
        self.messages += seen.call.messages[len(self.messages) :]
        self.sampled[len(self.messages)] = seen
        self.messages.append(seen.call.message)


def conversations(calls: Sequence[SeenCall]) -> list[Thread]:
    """The conversations of a rollout, in the order in which they began."""
    return ConversationGraph(calls).conversations


@dataclass(eq=False, slots=True)
class _Place:
    """A message in the tree of all messages to one model."""

    first: int
    """The first conversation with this message."""
    sampled: bool = False
    prompt_of: int | None = None
    """The first conversation with the prompt that ends here."""
    ends: list[int] = field(default_factory=list)
    """Conversations whose last message so far is this one."""
    next: "dict[int, _Place]" = field(default_factory=dict)


class ConversationGraph:
    """The conversations of some calls, and the training rows that their exact tokens make."""

    def __init__(self, calls: Sequence[SeenCall], returns: Sequence[float] | None = None) -> None:
        """`returns` has the return of each call's answer; None for the reward of the rollout."""
        self.conversations: list[Thread] = []
        """In the order in which they began."""
        self._trees: dict[str, _Place] = {}
        self._end_of: list[_Place] = []
        self._rows = OpenRows()
        self._by_row: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        self._numbers: dict[Essence, int] = {}
        self._known: dict[int, int] = {}
        self._answers: set[int] = set()
        values = [None] * len(calls) if returns is None else returns
        for seen, value in zip(calls, values, strict=True):
            self._add(seen, tokens_of_call(seen.call, value))

    @property
    def rows(self) -> list[TrainingRow]:
        """The rows in the order in which they began; usually one for each conversation with exact tokens."""
        return self._rows.finished()

    def _add(self, seen: SeenCall, tokens: CallTokens | None) -> None:
        call = seen.call
        row = None if tokens is None else self._rows.continued_by(tokens)
        by_tokens = None if row is None else self._whole(row)
        number = None if by_tokens is None else self._repeated(by_tokens, call.messages)
        if number is not None:
            path = [self._end_of[number]]
            keys = [self._key(message) for message in call.messages[len(self.conversations[number].messages) :]]
        else:
            tree = self._trees.setdefault(seen.model, _Place(first=len(self.conversations)))
            keys = [self._key(message) for message in call.messages]
            path = [tree]  # and the places of the messages, up to the first that is new in this order
            for key in keys:
                if (place := path[-1].next.get(key)) is None:
                    break
                path.append(place)
            number = self._continued(by_tokens, path, call.messages, tokens)
        if number is None:
            number = len(self.conversations)
            self.conversations.append(self._new_conversation(path, keys, call.messages, tokens))
            self._end_of.append(path[0])
        else:
            self._end_of[number].ends.remove(number)
        self.conversations[number].add(seen)
        self._remember(number, path, keys, self._key(call.message))
        if tokens is not None:
            row, span = self._rows.put(tokens, row)
            self._row_of[number] = row
            self._by_row[row] = number
            if span is not None:
                thread = self.conversations[number]
                thread.spans[len(thread.messages) - 1] = span
        else:
            self._row_of.pop(number, None)

    def _whole(self, row: int) -> int | None:
        """The conversation whose tokens are this row; None if calls without tokens have continued it since."""
        number = self._by_row[row]
        return number if self._row_of.get(number) == row else None

    def _repeated(self, number: int, messages: list[Message]) -> int | None:
        """The conversation, if the messages repeat it word by word, which saves looking them up."""
        known = self.conversations[number].messages
        return number if messages[: len(known)] == known else None

    def _continued(
        self, by_tokens: int | None, path: list[_Place], messages: list[Message], tokens: CallTokens | None
    ) -> int | None:
        if by_tokens is not None and self.conversations[by_tokens].is_continued_by(messages):
            return by_tokens
        ends = self._ends(path)
        if tokens is not None:  # a conversation whose tokens are known would have been found by them
            ends = [number for number in ends if number not in self._row_of]
        return ends[0] if ends else None

    def _new_conversation(
        self, path: list[_Place], keys: list[int], messages: list[Message], tokens: CallTokens | None
    ) -> Thread:
        here, shared = path[-1], len(path) - 1
        firsts = [*messages[:1], *(thread.messages[0] for thread in self.conversations)]
        parent = here.first if shared else None
        if tokens is not None and (ends := self._ends(path)):
            return Thread(began=Beginning.RETOKENIZED, parent=ends[0], shared=len(self.conversations[ends[0]].messages))
        if not path[0].next:
            why = Beginning.OTHER_MODEL if self.conversations else Beginning.FIRST
        elif shared == len(keys) and here.prompt_of is not None:
            why, parent = Beginning.RETRY, here.prompt_of
        elif self._is_rewritten(here, keys[shared:], messages[shared:]):
            why = Beginning.REWRITTEN
        elif any(place.sampled for place in path):
            why = Beginning.FORK
        elif not shared and any(message.get("role") in _SYSTEM for message in firsts):
            why = Beginning.OTHER_SYSTEM_PROMPT
        else:
            why = Beginning.OTHER_PROMPT
        return Thread(began=why, parent=parent, shared=shared)

    def _is_rewritten(self, here: _Place, keys: list[int], messages: list[Message]) -> bool:
        """True if an answer was changed, or comes after a changed message."""
        replaced = here.prompt_of is not None and bool(messages) and messages[0].get("role") == "assistant"
        return replaced or not self._answers.isdisjoint(keys)

    def _ends(self, path: list[_Place]) -> list[int]:
        """The conversations that the messages begin with all of, longest first."""
        return [number for place in reversed(path) for number in place.ends]

    def _remember(self, number: int, path: list[_Place], keys: list[int], answer: int) -> None:
        place = path[-1]
        for key in keys[len(path) - 1 :]:
            place = place.next.setdefault(key, _Place(first=number))
        if place.prompt_of is None:
            place.prompt_of = number
        end = place.next.setdefault(answer, _Place(first=number))
        end.sampled = True
        end.ends.append(number)
        self._end_of[number] = end
        self._answers.add(answer)

    def _key(self, message: Message) -> int:
        """Equal for messages with the same essence; calls of one rollout share the objects of equal messages."""
        key = self._known.get(id(message))
        if key is None:
            key = self._known[id(message)] = self._numbers.setdefault(essence(message), len(self._numbers))
        return key


def text_of(message: Message) -> str:
    """The message's text; parts that are not text (an image) are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def essence(message: Message) -> Essence:
    """Equal for messages that are the same to a chat template; hashable.

    Clients add and drop empty fields when they send an answer back; frameworks reformat the arguments of a tool call,
    and send a text in parts.
    """
    calls = tuple(
        (call.get("id"), function.get("name"), _arguments(function.get("arguments")))
        for call in message.get("tool_calls") or ()
        for function in [call.get("function") or {}]
    )
    return message.get("role"), _content(message), calls, message.get("tool_call_id"), message.get("name")


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not content:
        return ""
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return text_of(message)
    return _canonical(content)


def _arguments(given: Any) -> str:
    if not isinstance(given, str):
        return _canonical(given)
    try:
        return _canonical(parse_json(given))
    except ValueError:  # a model may sample anything
        return given


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
