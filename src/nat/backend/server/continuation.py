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
import re
import sys
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from nat.backend.byte_cache import ENTRY_BYTES
from nat.backend.server.tool_parser import HermesParser
from nat.backend.tokenizer import ChatTokenizer, template_message
from nat.wire.openai_responses import BrokenPrefix

MAX_BYTES = 256 * 2**20
MAX_TURNS = 256
"""Turns with equal texts that differ in their tokens or sessions; the oldest are dropped first."""

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

    @cached_property
    def content_keys(self) -> list[ContentKey]:
        return [content_key(message) for message in self.messages]

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

    @property
    def num_bytes(self) -> int:
        return ENTRY_BYTES + sum(map(sys.getsizeof, (self.text, self.ids, self.sampled, self.session)))


class Continuations:
    """Remembers turns of `max_bytes` in total; drops the least recently used first. Safe to call from any thread."""

    def __init__(self, tokenizer: ChatTokenizer, *, max_bytes: int = MAX_BYTES) -> None:
        self._tokenizer = tokenizer
        self._structure = re.compile("|".join(map(re.escape, sorted(tokenizer.special_tokens, reverse=True))))
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

    def render(self, chat: Chat) -> str:
        """The text that the model's template writes for a chat.

        Raises:
            ChatNotRendered: the template refuses the messages.
            ModelNotSupported: there is no template.

        """
        arguments = dict(chat.template_arguments)
        return self._tokenizer.render_text(chat.messages, tools=chat.tools, template_arguments=arguments)

    def prompt(self, chat: Chat, text: str, *, session: str = "") -> Prompt:
        """Tokens of a rendered chat that continue those of the latest answer for which this is possible.

        Of several answers with equal texts after equal prompts it takes that of the `session`, else the newest of those
        without one; without a session, the newest of all.
        """
        broken = None
        for at in reversed(chat.answers):
            found = self._continued(chat, at, text, session)
            if isinstance(found, list):
                return Prompt(chat.contexts[-1], text, found, broken)
            broken = found or broken
        if broken is None and chat.answers:
            broken = BrokenPrefix.NOT_SERVED
        return Prompt(chat.contexts[-1], text, self._tokenizer.encode_rendered(text), broken)

    def remember(
        self, prompt: Prompt, answer: str, token_ids: Sequence[int], *, tools: bool, session: str = ""
    ) -> None:
        """Keep what was sampled after a prompt; `tools` says to read calls from the answer's text."""
        turn = _Turn(prompt.text, prompt.packed, array("i", token_ids), session)
        key = (prompt.context, content_key(_message(answer, tools=tools)))
        with self._lock:
            turns = self._take(key)
            self._put(key, [*(known for known in turns if not _replaces(turn, known)), turn][-MAX_TURNS:])
            while self._num_bytes > self._max_bytes:
                self._take(next(iter(self._turns)))

    def _continued(self, chat: Chat, at: int, text: str, session: str) -> list[int] | BrokenPrefix | None:
        """Ids of the text, exact up to the answer at this index; else why not; None if it was not served here."""
        context, said = chat.contexts[at], chat.content_keys[at]
        with self._lock:
            known = self._turns.get((context, said), ())
            turns = [turn for turn in known if not session or turn.session in ("", session)]
            if not turns and (session, context) in self._contexts:
                return BrokenPrefix.ANSWER_EDITED
            if not turns:
                return BrokenPrefix.CONTEXT_CHANGED if (session, said) in self._counts else None
            self._turns.move_to_end((context, said))
        fitting = [turn for turn in turns if text.startswith(turn.text)]
        if not fitting:
            return BrokenPrefix.TEMPLATE_REWRITES
        turn = next((turn for turn in reversed(fitting) if turn.session == session), fitting[-1])
        end = self._end_of_answer(text, len(turn.text), chat.messages[at])
        if end is None:
            return BrokenPrefix.TEMPLATE_REWRITES
        rest = self._tokenizer.encode_rendered(text[end:])
        return [*turn.ids, *turn.sampled, *(rest[1:] if list(turn.sampled[-1:]) == rest[:1] else rest)]

    def _end_of_answer(self, text: str, start: int, message: Mapping[str, Any]) -> int | None:
        """Position of the special token that ends the turn; None if the template did not write the answer."""
        found = self._structure.search(text, start)
        if found is None:
            return None
        written = _message(text[start : found.start()], tools=bool(message.get("tool_calls")))
        return found.start() if content_key(written) == content_key(message) else None

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


def _message(text: str, *, tools: bool) -> dict[str, Any]:
    """The message of an answer's text with all of its calls, of which the client may have received fewer."""
    if not tools:
        return {"role": "assistant", "content": text}
    parser = HermesParser()
    content, calls = parser.push(text)
    functions = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
    return template_message({"role": "assistant", "content": content + parser.finish(), "tool_calls": functions})


def _replaces(turn: _Turn, known: _Turn) -> bool:
    """True for two turns of the same session after the same prompt, of which only the newer is kept."""
    return (turn.session, turn.ids, turn.text) == (known.session, known.ids, known.text)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
