"""Continue a chat from the tokens that were sampled, not from its text tokenised again.

A client sends an answer back as text, and a tokenizer may split that text differently than it was sampled. So the
server remembers what it served: each prompt, as the template wrote it and as token ids, and the tokens of its answers.
A later prompt that begins with such a prompt and one of its answers reuses their tokens; only the rest is tokenised.
If the template writes an answer differently than it was sampled (beyond white space around it and the layout of a
call's JSON), it means something else: then nothing is reused, and the reason is reported.

A session reuses its own turns and those without a session. Reasons are about its own turns only, since others would
tell what somebody else's prompt is.
"""

import json
import sys
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Any

from nat.backend.tokenizer import ChatTokenizer, template_message
from nat.backend.words.formats import REASONING, Format
from nat.backend.words.reader import plain_content, read_answer
from nat.wire.openai_api import BrokenPrefix

MAX_BYTES = 256 * 2**20
ENTRY_BYTES = 300
"""Size of an entry beyond its content: keys, links, object headers."""
MAX_TURNS = 256
"""Turns with equal texts that differ in their tokens or sessions; the oldest are dropped first."""

_MAX_MARKS = 100
"""Special tokens after an answer's beginning among which its end is searched."""

ContentKey = bytes
"""Digest of a message's content; equal for an answer and for the message that a client makes of it."""
Context = bytes
"""Digest of everything before a message: earlier messages, the tools, the template's arguments."""


@dataclass(frozen=True)
class Chat:
    """A conversation as a chat template takes it, to be continued by the assistant."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] | None = None
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    words: Format | None = None
    """Tells thinking in the content of answers."""

    @cached_property
    def plain_messages(self) -> list[dict[str, Any]]:
        """The messages, without the thinking that clients send in the content of answers."""
        return [self._without_marks(message) for message in self.messages]

    @cached_property
    def content_keys(self) -> list[ContentKey]:
        return [content_key(message) for message in self.plain_messages]

    def _without_marks(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if self.words is None or message.get("role") != "assistant" or not isinstance(content, str):
            return message
        return {**message, "content": plain_content(self.words, content)}

    @cached_property
    def contexts(self) -> list[Context]:
        """The context of each message, and last that of the next one."""
        start = _digest(_canonical([self.tools, self.template_arguments]))
        return list(accumulate(self.content_keys, lambda before, said: _digest(before + said), initial=start))

    @property
    def answers(self) -> list[int]:
        """Indices of the assistant's messages."""
        return [at for at, message in enumerate(self.messages) if message.get("role") == "assistant"]


@dataclass(frozen=True)
class Prompt:
    """A chat as the model continues it."""

    context: Context
    text: str
    """The text that the template wrote."""
    ids: list[int]
    broken: BrokenPrefix | None
    """Why the ids lack sampled tokens of some answer; None if they lack none."""
    tools: Sequence[dict[str, Any]] | None = None

    @cached_property
    def packed(self) -> "array[int]":
        """The ids in four bytes each."""
        return array("i", self.ids)


@dataclass(frozen=True)
class _Turn:
    """An answer's tokens, and the session in which they were sampled."""

    text: str
    ids: "array[int]"
    sampled: "array[int]"
    session: str
    reasoning: str
    """The answer's thinking, for clients that do not send it back."""

    @property
    def num_bytes(self) -> int:
        return ENTRY_BYTES + sum(map(sys.getsizeof, (self.text, self.ids, self.sampled, self.session, self.reasoning)))


class Continuations:
    """Remembers turns of `max_bytes` in total; drops the least recently used first. Safe to call from any thread."""

    def __init__(self, tokenizer: ChatTokenizer, *, max_bytes: int = MAX_BYTES) -> None:
        self._tokenizer = tokenizer
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._turns: OrderedDict[tuple[Context, ContentKey], list[_Turn]] = OrderedDict()
        self._contexts: Counter[tuple[str, Context]] = Counter()
        self._counts: Counter[tuple[str, ContentKey]] = Counter()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Size of what is remembered: four bytes for each token, and the text of the prompts."""
        return self._num_bytes

    def with_reasoning(self, chat: Chat, *, session: str = "") -> Chat:
        """The chat with the thinking of answers that were served here, which most clients do not send back.

        The template decides whether it writes the thinking.
        """
        words, messages = self._tokenizer.words, list(chat.messages)
        for at in chat.answers if words.format.reasoning else ():
            silent = not any(name in messages[at] for name in REASONING) and chat.plain_messages[at] == messages[at]
            with self._lock:
                turns = self._usable(chat, at, session) if silent else []
            if turns and turns[0].reasoning:
                messages[at] = words.with_reasoning(messages[at], turns[0].reasoning)
        return chat if messages == chat.messages else replace(chat, messages=messages)

    def prompt(self, chat: Chat, text: str, *, session: str = "") -> Prompt:
        """Tokens of a rendered chat that continue those of the latest answer for which this is possible.

        Of several answers with equal texts after equal prompts it takes that of the `session`, else the newest of those
        without one; without a session, the newest of all.
        """
        broken = None
        for at in reversed(chat.answers):
            found = self._continued(chat, at, text, session)
            if isinstance(found, list):
                return Prompt(chat.contexts[-1], text, found, broken, chat.tools)
            broken = found or broken
        if broken is None and chat.answers:
            broken = BrokenPrefix.NOT_SERVED
        return Prompt(chat.contexts[-1], text, self._tokenizer.encode_rendered(text), broken, chat.tools)

    def remember(
        self, prompt: Prompt, answer: str, token_ids: Sequence[int], *, tools: bool, session: str = ""
    ) -> None:
        """Keep what was sampled after a prompt; `tools` says to read calls from the answer's text."""
        said, reasoning = self._read(answer, prompt.text, prompt.tools if tools else None)
        turn = _Turn(prompt.text, prompt.packed, array("i", token_ids), session, reasoning)
        key = (prompt.context, content_key(said))
        with self._lock:
            turns = self._take(key)
            # Of two turns of the same session after the same prompt, only the newer is kept.
            others = [o for o in turns if (o.session, o.ids, o.text) != (turn.session, turn.ids, turn.text)]
            self._put(key, [*others, turn][-MAX_TURNS:])
            while self._num_bytes > self._max_bytes:
                self._take(next(iter(self._turns)))

    def _continued(self, chat: Chat, at: int, text: str, session: str) -> list[int] | BrokenPrefix | None:
        context, said = chat.contexts[at], chat.content_keys[at]
        with self._lock:
            turns = self._usable(chat, at, session)
            if not turns and (session, context) in self._contexts:
                return BrokenPrefix.ANSWER_EDITED
            if not turns:
                return BrokenPrefix.CONTEXT_CHANGED if (session, said) in self._counts else None
            self._turns.move_to_end((context, said))
        tried = set()
        for turn in turns:
            if (turn.text, turn.reasoning) in tried or not text.startswith(turn.text):
                continue
            tried.add((turn.text, turn.reasoning))
            if (end := self._end_of_answer(chat, at, text, turn)) is not None:
                rest = self._tokenizer.encode_rendered(text[end:])
                return [*turn.ids, *turn.sampled, *(rest[1:] if list(turn.sampled[-1:]) == rest[:1] else rest)]
        return BrokenPrefix.TEMPLATE_REWRITES

    def _end_of_answer(self, chat: Chat, at: int, text: str, turn: _Turn) -> int | None:
        start = len(turn.text)
        for found in islice(self._tokenizer.control_tokens.finditer(text, start), _MAX_MARKS):
            said, reasoning = self._read(text[start : found.end()], turn.text, chat.tools)
            if reasoning == turn.reasoning and content_key(said) == chat.content_keys[at]:
                return found.start()
            if found.group() == self._tokenizer.hf.eos_token:
                return None
        return None

    def _usable(self, chat: Chat, at: int, session: str) -> list[_Turn]:
        known = self._turns.get((chat.contexts[at], chat.content_keys[at]), [])
        turns = [turn for turn in reversed(known) if not session or turn.session in ("", session)]
        return sorted(turns, key=lambda turn: turn.session != session)

    def _read(self, text: str, prompt: str, tools: Sequence[dict[str, Any]] | None) -> tuple[dict[str, Any], str]:
        words = self._tokenizer.words.format
        piece = read_answer(words if tools else words.without_calls, text, tools=tools, prefix=words.prefix(prompt))
        calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in piece.calls]
        message = {"role": "assistant", "content": piece.content, "tool_calls": calls}
        return template_message(message), piece.reasoning.strip()

    def _put(self, key: tuple[Context, ContentKey], turns: list[_Turn]) -> None:
        self._turns[key] = turns
        for turn in turns:
            self._contexts[turn.session, key[0]] += 1
            self._counts[turn.session, key[1]] += 1
        self._num_bytes += sum(turn.num_bytes for turn in turns)

    def _take(self, key: tuple[Context, ContentKey]) -> list[_Turn]:
        turns = self._turns.pop(key, [])
        self._num_bytes -= sum(turn.num_bytes for turn in turns)
        for turn in turns:
            for counter, part in ((self._contexts, key[0]), (self._counts, key[1])):
                counter[turn.session, part] -= 1
                if not counter[turn.session, part]:
                    del counter[turn.session, part]
        return turns


def content_key(message: Mapping[str, Any]) -> ContentKey:
    """Equal for messages with equal content, apart from white space around it, the layout of calls' JSON, and ids.

    Other fields that a template may show are compared in the text that it writes.
    """
    calls = [
        [function.get("name"), function.get("arguments")]
        for call in message.get("tool_calls") or ()
        for function in [call.get("function") or {}]
    ]
    return _digest(_canonical([message.get("role"), str(message.get("content") or "").strip(), calls]))


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
