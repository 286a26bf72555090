"""Conversations that a script plays through the server in place of a model, to see if each turn continues the last.

The script writes what the chat template writes for its answers, in the tokens into which letters split, as no tokenizer
splits a text. A rollout of an agent is one row for training if every prompt begins with the tokens of the turn before.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import httpx

from nat.backend.inference.sequence import Request
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.server.app import create_app
from nat.backend.tokenizer import ChatTokenizer
from nat.backend.words.samples import ASKED, FIRST, REFUSALS, SECOND, TOOLS, answer, calling
from nat.errors import NatError
from nat.http.client import bearer
from nat.sizing.certificate import Rehearsal
from nat.wire.openai_requests import SESSION_HEADER
from nat.wire.openai_responses import BrokenPrefix

_NAME = "rehearsal"
_CONTEXT = 1_000_000
"""Tokens; no prompt of the script meets it."""
_THOUGHT = "First one, then the other."
_QUESTION = {"role": "user", "content": "What is the weather in Paris and in Rome?"}
_LOOP = (calling((FIRST, {"zqa": "Paris"})), calling((SECOND, {"zqa": "Rome", "zqc": 3})))
_RESULT = '{"degrees": 17}'
_ANSWER = {"role": "assistant", "content": "It is 17 degrees in both."}
_NEXT = ({"role": "user", "content": "And tomorrow?"}, {"role": "assistant", "content": "It will rain."})


class _Script:
    """Answers each request with the next of its texts; the part of a `SamplingEngine` that chats use."""

    def __init__(self, tokenizer: ChatTokenizer, texts: Iterable[str]) -> None:
        nothing: Any = None  # the server of chats reads no weights
        self.loaded = LoadedModel(nothing, tokenizer, Path(_NAME), _CONTEXT, frozenset(), None, (), nothing)
        self._texts = iter(texts)

    def knows(self, name: str) -> bool:
        return name == _NAME

    def submit(self, request: Request) -> None:
        [sequence] = request.sequences
        sequence.token_ids = letters(self.loaded.tokenizer, next(self._texts))
        sequence.finish_reason = "stop"
        request.listener.on_finished()


def rehearse(tokenizer: ChatTokenizer) -> tuple[Rehearsal, Rehearsal]:
    """Play a question with two calls before its answer, then the same with a second question.

    A template that writes no calls is asked the questions alone. It writes thinking where it does so.
    """
    loop = _LOOP if tokenizer.words.proof.writes_calls else ()
    title = "a question with two tool calls" if loop else "a question"
    first = [_QUESTION, *loop, _ANSWER]
    second = [*first, *_NEXT]
    return _played(tokenizer, title, first), _played(tokenizer, f"{title}, and a second question", second)


def _played(tokenizer: ChatTokenizer, title: str, script: Sequence[dict[str, Any]]) -> Rehearsal:
    answers = [message for message in script if message["role"] == "assistant"]
    try:
        texts = [_text(tokenizer, message) for message in answers]
        if not all(_can_write(tokenizer, text) for text in texts):
            untried = "the tokenizer has no tokens for the words of the script"
            return Rehearsal(title=title, answers=len(answers), untried=untried)
        drift = asyncio.run(_drift(_Script(tokenizer, texts), script))
    except (NatError, *REFUSALS) as error:
        return Rehearsal(title=title, answers=len(answers), problem=str(error))
    return Rehearsal(title=title, answers=len(answers), rows=1 + len(drift), drift=tuple(drift))


def _text(tokenizer: ChatTokenizer, message: dict[str, Any]) -> str:
    """What the template writes for an answer, up to the token that ends it."""
    written = answer(tokenizer.render_text, message)
    if tokenizer.words.proof.writes_reasoning:
        thinking = answer(tokenizer.render_text, {**message, "reasoning_content": _THOUGHT})
        prompt = tokenizer.render_text([{"role": "user", "content": ASKED}], tools=TOOLS)
        written = thinking if prompt.endswith(thinking.header) else written  # else the prompt has closed the thinking
    end = tokenizer.hf.eos_token
    text, found, _ = written.text.partition(end) if end else (written.text, "", "")
    if found or not text.rstrip().endswith(tuple(tokenizer.special_tokens)):
        return text + (end or "")
    return text.rstrip()


def _can_write(tokenizer: ChatTokenizer, text: str) -> bool:
    """Whether the tokenizer has tokens for all of a text but its white space."""
    return tokenizer.decode_marked(letters(tokenizer, text)).split() == text.split()


def letters(tokenizer: ChatTokenizer, text: str) -> list[int]:
    """The tokens of a text letter by letter, special tokens whole; those of the text if letters do not make it up."""
    special = "|".join(map(re.escape, sorted(tokenizer.special_tokens, key=len, reverse=True)))
    pieces = re.findall(f"{special}|.", text, re.DOTALL)
    ids = list(chain.from_iterable(map(tokenizer.encode_rendered, pieces)))
    return ids if tokenizer.decode_marked(ids) == text else tokenizer.encode_rendered(text)


async def _drift(engine: _Script, script: Sequence[dict[str, Any]]) -> list[BrokenPrefix]:
    """Play the messages; what the server reports for each prompt that does not continue the turn before.

    Raises:
        ValueError: the server refuses them, or reads another answer than the script wrote.

    """
    app = create_app(cast("SamplingEngine", engine), api_key=_NAME)
    history, held, drift = list[dict[str, Any]](), list[int](), list[BrokenPrefix]()
    given = {"model": _NAME, "return_token_ids": True, "tools": TOOLS if _LOOP[0] in script else ()}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {**bearer(_NAME), SESSION_HEADER: _NAME}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        for message in script:
            if message["role"] != "assistant":
                history.append(message)
                continue
            reply = await client.post("/v1/chat/completions", json={**given, "messages": history})
            if reply.is_error:
                raise ValueError(f"the server answered {reply.status_code}: {reply.json()['error']['message']}")
            told = reply.json()
            [choice] = told["choices"]
            read = choice["message"]
            _check(message, read)
            if told["prompt_token_ids"][: len(held)] != held:
                drift.append(BrokenPrefix(told.get("broken_prefix", BrokenPrefix.NOT_SERVED)))
            held = told["prompt_token_ids"] + choice["token_ids"]
            # Most clients send content and calls back, and no thinking.
            history.append({key: read.get(key) for key in ("role", "content", "tool_calls")})
            for call in read.get("tool_calls") or ():
                result = {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"]}
                history.append({**result, "content": _RESULT})
    return drift


def _check(wrote: dict[str, Any], read: dict[str, Any]) -> None:
    wanted = [[call["function"]["name"], call["function"]["arguments"]] for call in wrote.get("tool_calls", ())]
    calls = [call["function"] for call in read.get("tool_calls") or ()]
    seen = [[call["name"], json.loads(call["arguments"])] for call in calls]
    content = (read.get("content") or "").strip()
    if (seen, content) != (wanted, wrote["content"]):
        raise ValueError(f"the script wrote {[*wanted, wrote['content']]}, and the server read {[*seen, content]}")
