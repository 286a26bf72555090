"""Thread the LLM calls of one rollout into a graph of conversations.

A call continues a conversation of its model if its prompt begins with all of it, the last answer included: by
token ids where they are known, by messages where they are not. What does not continue one (a sub-agent, a retry, a
fork, a rewritten history) begins its own, so nothing is merged that was not one conversation, and nothing is thrown
away. Where a call could continue several, it continues the longest, and of equal ones the earliest.

Messages are looked up in a tree of all that was said, so that a call costs what its own messages cost, however many
conversations there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nat.data_models.conversation import Beginning, ConversationRecord
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.tokens import tokens_of_call
from nat.finetuning.trajectories.wording import Essence, Message, essence
from nat.wire.rows import CallTokens, OpenRows

_SYSTEM = frozenset({"system", "developer"})


@dataclass
class Conversation:
    """Messages in order, and how it began; `sampled` maps positions, in order, to the calls that sampled there."""

    messages: list[Message] = field(default_factory=list)
    sampled: dict[int, SeenCall] = field(default_factory=dict)
    began: Beginning = Beginning.FIRST
    parent: int | None = None
    """Number of the conversation that it begins like."""
    shared: int = 0
    """Messages that it has in common with its parent."""

    @property
    def record(self) -> ConversationRecord:
        return ConversationRecord(
            began=self.began,
            parent=self.parent,
            shared=self.shared,
            messages=len(self.messages),
            calls=len(self.sampled),
        )

    def goes_on_in(self, messages: Sequence[Message]) -> bool:
        """True if the messages have its roles in its order, in whatever words."""
        roles = [message.get("role") for message in self.messages]
        return [message.get("role") for message in messages[: len(roles)]] == roles

    def add(self, seen: SeenCall) -> None:
        self.messages += seen.call.messages[len(self.messages) :]
        self.sampled[len(self.messages)] = seen
        self.messages.append(seen.call.message)


def conversations(calls: Sequence[SeenCall]) -> list[Conversation]:
    """The conversations of a rollout, in the order in which they began."""
    threads = _Threads()
    for seen in calls:
        threads.add(seen)
    return threads.found


@dataclass(eq=False, slots=True)
class _Place:
    """A message in the tree of all that was said to one model, after all messages before it."""

    first: int
    """The conversation that said it first."""
    sampled: bool = False
    asked: int | None = None
    """The first conversation in which the prompt that ends here was asked."""
    ends: list[int] = field(default_factory=list)
    """Conversations that end here for now."""
    next: "dict[int, _Place]" = field(default_factory=dict)


class _Threads:
    """Grows with each call."""

    def __init__(self) -> None:
        self.found: list[Conversation] = []
        self._trees: dict[str, _Place] = {}
        self._end_of: list[_Place] = []
        self._rows = OpenRows()
        self._by_row: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        self._numbers: dict[Essence, int] = {}
        self._known: dict[int, int] = {}
        self._answers: set[int] = set()

    def add(self, seen: SeenCall) -> None:
        call = seen.call
        tokens = tokens_of_call(call)
        row = None if tokens is None else self._rows.continued_by(tokens)
        by_tokens = None if row is None else self._whole(row)
        number = None if by_tokens is None else self._repeated(by_tokens, call.messages)
        if number is not None:
            path = [self._end_of[number]]
            keys = [self._key(message) for message in call.messages[len(self.found[number].messages) :]]
        else:
            tree = self._trees.setdefault(seen.model, _Place(first=len(self.found)))
            keys = [self._key(message) for message in call.messages]
            path = _walk(tree, keys)
            number = self._continued(by_tokens, path, call.messages, tokens)
        if number is None:
            number = len(self.found)
            self.found.append(self._begun(path, keys, call.messages, tokens))
            self._end_of.append(path[0])
        else:
            self._end_of[number].ends.remove(number)
        self.found[number].add(seen)
        self._remember(number, path, keys, self._key(call.message))
        if tokens is not None:
            row = self._row_of[number] = self._rows.put(tokens, row)
            self._by_row[row] = number
        else:
            self._row_of.pop(number, None)

    def _whole(self, row: int) -> int | None:
        """The conversation that the row is all of; None if calls without tokens have gone on with it since."""
        number = self._by_row[row]
        return number if self._row_of.get(number) == row else None

    def _repeated(self, number: int, messages: list[Message]) -> int | None:
        """The conversation, if the messages repeat it word by word; as a rule they do, and need not be looked up."""
        known = self.found[number].messages
        return number if messages[: len(known)] == known else None

    def _continued(
        self, by_tokens: int | None, path: list[_Place], messages: list[Message], tokens: CallTokens | None
    ) -> int | None:
        if by_tokens is not None and self.found[by_tokens].goes_on_in(messages):
            return by_tokens
        ends = self._ends(path)
        if tokens is not None:  # a conversation whose tokens are known would have been found by them
            ends = [number for number in ends if number not in self._row_of]
        return ends[0] if ends else None

    def _begun(
        self, path: list[_Place], keys: list[int], messages: list[Message], tokens: CallTokens | None
    ) -> Conversation:
        here, shared = path[-1], len(path) - 1
        parent = here.first if shared else None
        if tokens is not None and (ends := self._ends(path)):
            return Conversation(began=Beginning.RETOKENIZED, parent=ends[0], shared=len(self.found[ends[0]].messages))
        if not path[0].next:
            why = Beginning.OTHER_MODEL if self.found else Beginning.FIRST
        elif shared == len(keys) and here.asked is not None:
            why, parent = Beginning.RETRY, here.asked
        elif self._is_rewritten(here, keys[shared:], messages[shared:]):
            why = Beginning.REWRITTEN
        elif any(place.sampled for place in path):
            why = Beginning.FORK
        elif not shared and self._speaks_as_system(messages):
            why = Beginning.OTHER_SYSTEM_PROMPT
        else:
            why = Beginning.OTHER_PROMPT
        return Conversation(began=why, parent=parent, shared=shared)

    def _is_rewritten(self, here: _Place, keys: list[int], messages: list[Message]) -> bool:
        """True if an answer of the rollout comes after a change, or stands changed where it was sampled."""
        replaced = here.asked is not None and bool(messages) and messages[0].get("role") == "assistant"
        return replaced or not self._answers.isdisjoint(keys)

    def _speaks_as_system(self, messages: list[Message]) -> bool:
        firsts = [*messages[:1], *(thread.messages[0] for thread in self.found)]
        return any(message.get("role") in _SYSTEM for message in firsts)

    def _ends(self, path: list[_Place]) -> list[int]:
        """The conversations that the messages begin with all of, longest first."""
        return [number for place in reversed(path) for number in place.ends]

    def _remember(self, number: int, path: list[_Place], keys: list[int], answer: int) -> None:
        place = path[-1]
        for key in keys[len(path) - 1 :]:
            place = place.next.setdefault(key, _Place(first=number))
        if place.asked is None:
            place.asked = number
        end = place.next.setdefault(answer, _Place(first=number))
        end.sampled = True
        end.ends.append(number)
        self._end_of[number] = end
        self._answers.add(answer)

    def _key(self, message: Message) -> int:
        """Equal for messages that say the same; calls of one rollout share the objects of equal messages."""
        key = self._known.get(id(message))
        if key is None:
            key = self._known[id(message)] = self._numbers.setdefault(essence(message), len(self._numbers))
        return key


def _walk(tree: _Place, keys: list[int]) -> list[_Place]:
    """The tree's root and, as far as they were said before in this order, the places of the messages."""
    path = [tree]
    for key in keys:
        place = path[-1].next.get(key)
        if place is None:
            break
        path.append(place)
    return path
