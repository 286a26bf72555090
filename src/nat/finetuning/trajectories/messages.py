"""Sort the LLM calls of one rollout into conversations.

A call continues a conversation of its model if its prompt begins with all of it, the last answer included: by
token ids where they are known, by messages where they are not. What does not continue one (a sub-agent, a retry, a
fork, a rewritten history) begins a new one, so no call is dropped and no two conversations are merged. Where a call
could continue several, it continues the longest, and of equal ones the earliest.

Training rows are merged on the way, since a row shows which conversation a call continues.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from nat.finetuning.trajectories.calls import SeenCall, tokens_of_call
from nat.runs.rollouts import Answer, Beginning, Conversation
from nat.wire.json import parse_json
from nat.wire.rows import CallTokens, OpenRows
from nat.wire.training import Span, TrainingRow

Message = dict[str, Any]
Essence = tuple[Any, ...]

_SYSTEM = frozenset({"system", "developer"})


class Thread(Conversation):
    """A conversation with its calls, which its record is without."""

    sampled: dict[int, SeenCall] = Field(default_factory=dict)
    """The calls that sampled messages, by the positions of these."""
    keys: list[int] = Field(default_factory=list)
    """Of each message, as the last call had it: equal for messages with the same essence."""
    row: int | None = None
    """The open row that has all its tokens; None if calls without tokens have continued it since."""

    def shared_with(self, keys: Sequence[int]) -> int:
        """The number of leading messages in common."""
        size = min(len(self.keys), len(keys))
        if self.keys[:size] == keys[:size]:
            return size
        return next(place for place in range(size) if self.keys[place] != keys[place])


def conversations(calls: Sequence[SeenCall]) -> list[Thread]:
    """The conversations of a rollout, in the order in which they began."""
    return _Graph(calls).threads


def conversations_and_rows(calls: Sequence[SeenCall]) -> tuple[list[Thread], list[TrainingRow]]:
    """Also the rows that their exact tokens make, usually one for each conversation; answers say where theirs are."""
    graph = _Graph(calls)
    rows = graph.rows.finished()
    places = {id(span): (row, at) for row, each in enumerate(rows) for at, span in enumerate(each.spans)}
    for answer, span in graph.spans:
        answer.row, answer.span = places[id(span)]
    return graph.threads, rows


class _Graph:
    """Threads and rows, to which calls are added one by one."""

    def __init__(self, calls: Sequence[SeenCall]) -> None:
        self.threads: list[Thread] = []
        self.rows = OpenRows()
        self.spans: list[tuple[Answer, Span]] = []
        self._by_row: dict[int, int] = {}
        """The thread that each row's last call is of."""
        self._of_model: dict[str, list[tuple[int, Thread]]] = {}
        self._answers: set[int] = set()
        """The keys of all answers."""
        self._numbers: dict[Essence, int] = {}
        self._known: dict[int, int] = {}
        for seen in calls:
            self._add(seen, tokens_of_call(seen.call, seen.value))

    def _add(self, seen: SeenCall, tokens: CallTokens | None) -> None:
        messages, said = seen.call.messages, seen.call.message
        keys = [self._key(message) for message in messages]
        row = None if tokens is None else self.rows.continued_by(tokens)
        threads = self._of_model.setdefault(seen.model, [])
        own = [(number, thread, thread.shared_with(keys)) for number, thread in threads]
        whole = [(number, thread) for number, thread, shared in own if shared == len(thread.keys)]
        ends = [number for number, _ in sorted(whole, key=lambda each: -len(each[1].keys))]
        number = self._continued(row, messages, ends, exact=tokens is not None)
        if number is None:
            number = len(self.threads)
            self.threads.append(self._begun(own, keys, messages, ends if tokens is not None else []))
            threads.append((number, self.threads[number]))
        thread = self.threads[number]
        thread.messages += messages[len(thread.messages) :]
        thread.sampled[len(thread.messages)] = seen
        thread.answers.append(answer := Answer(message=len(thread.messages)))
        thread.messages.append(said)
        thread.tools = seen.call.tools or []
        thread.keys = [*keys, self._key(said)]
        self._answers.add(thread.keys[-1])
        thread.row = None
        if tokens is not None:
            thread.row, span = self.rows.put(tokens, row)
            self._by_row[thread.row] = number
            self.spans += [] if span is None else [(answer, span)]

    def _continued(self, row: int | None, messages: list[Message], ends: list[int], *, exact: bool) -> int | None:
        """The thread that a call continues, where it continues a row, and the threads that its messages begin with."""
        if row is not None and (thread := self.threads[self._by_row[row]]).row == row:
            roles = [message.get("role") for message in thread.messages]
            if [message.get("role") for message in messages[: len(roles)]] == roles:  # whatever the texts
                return self._by_row[row]
        if exact:  # a thread whose tokens are known would have been found by them
            ends = [number for number in ends if self.threads[number].row is None]
        return ends[0] if ends else None

    def _begun(
        self, own: list[tuple[int, Thread, int]], keys: list[int], messages: list[Message], retokenized: list[int]
    ) -> Thread:
        """A thread that begins beside those of its model, each with what it shares with them."""
        if retokenized:
            before = len(self.threads[retokenized[0]].messages)
            return Thread(began=Beginning.RETOKENIZED, parent=retokenized[0], shared=before)
        if not own:
            return Thread(began=Beginning.OTHER_MODEL if self.threads else Beginning.FIRST)
        shared = max(common for _, _, common in own)
        beside = [(number, thread) for number, thread, common in own if common == shared]
        parent = beside[0][0] if shared else None
        asked = next((number for number, thread in beside if shared in thread.sampled), None)
        following = None if shared == len(keys) else messages[shared].get("role")
        if asked is not None and following is None:
            why, parent = Beginning.RETRY, asked
        elif (asked is not None and following == "assistant") or not self._answers.isdisjoint(keys[shared:]):
            why = Beginning.REWRITTEN  # an answer was changed, or comes after a changed message
        elif any(place < common for _, thread, common in own for place in thread.sampled):
            why = Beginning.FORK
        elif not shared and any(
            message.get("role") in _SYSTEM
            for message in (*messages[:1], *(thread.messages[0] for thread in self.threads))
        ):
            why = Beginning.OTHER_SYSTEM_PROMPT
        else:
            why = Beginning.OTHER_PROMPT
        return Thread(began=why, parent=parent, shared=shared)

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
