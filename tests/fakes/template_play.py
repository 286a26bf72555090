"""A conversation of three turns with a chat template: the server is real, its model writes what the template would."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from fakes.keys import KEY
from fakes.scripted_worker import ScriptedWorker
from fakes.sse import chunks_of
from fakes.tiny_model import tiny_tokenizer
from nat.backend.inference.sequence import Delta, Request
from nat.backend.server.app import create_app
from nat.backend.tokenizer import ChatNotRendered, ChatOptions, ChatTokenizer, template_message
from nat.backend.words.samples import FIRST, REFUSALS, SECOND, TOOLS, Render, answer, calling
from nat.wire.rows import CallTokens, merge

MARKS = re.compile(  # DeepSeek's marks have a wide bar
    r"<\|[^|<>\s{}]{1,40}\|>|<\uff5c[^\uff5c<>\s{}]{1,40}\uff5c>|\[/?[A-Z_]{3,20}\]|</s>|<(?:start|end)_of_turn>|<\|[a-z_]+>|<[a-z_]+\|>"
)
"""Texts that tokenizers of public models have as special tokens."""
_ENDS = re.compile(rf"{MARKS.pattern}|<[^<>\s]+>|\[e~\[")
"""Texts that may end a turn, some of them special tokens for that alone."""
THOUGHT = "First the weather."
SAID = "It is 17 degrees there."
DATE = "2026-07-09T12:00:00"
_ARGUMENTS = {"zqa": "Paris", "zqb": "two words", "zqc": 3}


def letters(tokenizer: ChatTokenizer, text: str) -> list[int]:
    """The tokens of a text letter by letter, special tokens whole; those of the text if letters do not make it up."""
    special = "|".join(map(re.escape, sorted(tokenizer.special_tokens, key=len, reverse=True)))
    pieces = re.findall(f"{special}|.", text, re.DOTALL)
    ids = [token for piece in pieces for token in tokenizer.encode_rendered(piece)]
    return ids if tokenizer.decode_marked(ids) == text else tokenizer.encode_rendered(text)


class Model(ScriptedWorker):
    """Samples `text` letter by letter, its marks as whole tokens; with `cut`, at the token limit."""

    text, cut = "", False

    def submit(self, request: Request) -> None:
        tokenizer = self.engine.loaded.tokenizer
        [sequence] = request.sequences
        request.policy_version = self.policy_version
        ids = letters(tokenizer, self.text)
        if not (self.cut or self.text.rstrip().endswith(tuple(tokenizer.special_tokens))):
            ids.append(tokenizer.eos_token_id)
        reason = "length" if self.cut else "stop"
        for place, token in enumerate(ids, 1):
            sequence.token_ids.append(token)
            sequence.logprobs.append(-0.5)
            last = place == len(ids)
            if sequence.text is not None:
                sequence.text.push(token)
                if last:
                    sequence.text.finish()
            if request.stream:
                shown = sequence.text.take()
                request.listener.on_deltas(
                    [Delta(sequence.index, [token], [-0.5], [], shown, reason if last else None)]
                )
        sequence.finish_reason = reason
        request.listener.on_finished()


@dataclass
class Played:
    """What the server made of a template; None for what it has no words for."""

    renders: str = ""
    """Why it does not; empty if it does."""
    format: str = ""
    tried: str = ""
    """Why no known format reads the calls; empty if one does."""
    writes_calls: bool = False
    one: bool | None = None
    several: bool | None = None
    streamed: bool | None = None
    cut: bool | None = None
    malformed: bool | None = None
    reasoning: bool | None = None
    """True if thinking comes back as `reasoning_content`."""
    kept: bool | None = None
    """True if a tool loop's next prompt has it."""
    null: bool | None = None
    """True if an answer that is a call alone, with `content: null`, can be sent back."""
    loop_rows: int | None = None
    rows: int | None = None
    drift: list[str] = field(default_factory=list)
    """Causes for which prompts did not continue the sampled tokens, each with the prompt's number; `no_end_mark` if the
    template wrote the earlier prompt and the answer as they were, and no special token ends the answer."""
    failed: dict[str, str] = field(default_factory=dict)


def tokenizer_of(source: str, *, marks: Sequence[str] = (), **variables: Any) -> ChatTokenizer:
    """A tokenizer of letters and of the template's marks; an answer ends with the mark that the template writes.

    `marks` are further special tokens of the family.
    """
    hf = tiny_tokenizer()
    hf.chat_template = source
    options = ChatOptions(variables, now=DATE)
    hf.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    own = dict.fromkeys([*MARKS.findall(source), *marks])
    hf.add_special_tokens({"additional_special_tokens": [mark for mark in own if mark != "</s>"]})
    if (end := _end_of_turn(ChatTokenizer(hf, options=options).render_text)) is not None:
        hf.add_special_tokens({"eos_token": end})
    return ChatTokenizer(hf, options=options)


def _end_of_turn(render: Render) -> str | None:
    """The mark that a template writes after an answer, or before what follows one."""
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": SAID}]
    try:
        whole = render(chat, tools=TOOLS, for_answer=False)
        followed = render([*chat, chat[0]], tools=TOOLS, for_answer=False)
        texts = [whole, answer(render, chat[1]).text]
        if whole == render(chat, tools=TOOLS, for_answer=True):  # it begins another answer after each one
            texts.reverse()
    except REFUSALS:
        return None
    found = [ends[-1] for text in texts if (ends := _ENDS.findall(text.rpartition(SAID)[2]))]
    return next(iter(found or _ENDS.findall(followed.rpartition(SAID)[2])), None)


class Player:
    """Plays with one template."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer, self.found = tokenizer, Played()
        loaded = SimpleNamespace(tokenizer=tokenizer, max_seq_length=65536)
        self.model = Model(loaded)
        self.app = create_app(self.model, api_key=KEY)

    def written(self, step: dict[str, Any], messages: Sequence[dict[str, Any]]) -> str:
        """What the model has to write for this answer; a template that drops thinking has it before the answer."""
        words, thought = self.tokenizer.words, step.get("reasoning_content")
        plain = self._rendered({key: value for key, value in step.items() if key != "reasoning_content"})
        if words.format.reasoning is None:
            return plain
        field, prompt = (
            words.format.fields[words.format.reasoning],
            self.tokenizer.render_text([template_message(message) for message in messages], tools=list(TOOLS)),
        )
        opened, closed = (field.open_literals or [""])[0], (field.close_literals or [""])[0]
        prefix = words.format.prefix(prompt)
        if thought is None:
            return closed + plain if prefix else plain
        if closed and prompt.rstrip().endswith(closed.strip()):
            return plain  # by default, this model does not think
        if thought in (text := self._rendered(step)):
            return text
        return ("" if prefix else opened) + thought + closed + plain

    def _rendered(self, message: dict[str, Any]) -> str:
        text, eos = answer(self.tokenizer.render_text, message).text, self.tokenizer.hf.eos_token
        if (end := text.rfind(eos)) >= 0:
            return text[: end + len(eos)]
        if "tool_calls" not in message or text.endswith(tuple(self.tokenizer.special_tokens)):
            return text
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "17"}
        chat = [{"role": "user", "content": "?"}, message]
        before, after = (
            self.tokenizer.render_text(each, tools=TOOLS, for_answer=False) for each in (chat, [*chat, result])
        )
        mark = MARKS.match(after.removeprefix(before).lstrip()) if after.startswith(before) else None
        return text + (mark.group() if mark else "")  # such as Gemma's mark of a result, with which it stops

    async def ask(self, messages: list[dict[str, Any]], text: str, *, cut: bool = False, **fields: Any) -> Any:
        """The server's answer, with the tokens."""
        self.model.text, self.model.cut = text, cut
        body = {"model": "scripted", "messages": messages, "tools": list(TOOLS), "return_token_ids": True} | fields
        headers = {"authorization": f"Bearer {KEY}"}
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://backend", headers=headers) as client:
            response = await client.post("/v1/chat/completions", json=body)
        if response.status_code != httpx.codes.OK:
            raise ChatNotRendered(response.json()["error"]["message"])
        return chunks_of(response.text) if fields.get("stream") else response.json()

    async def play(self) -> Played:
        """All that the table has."""
        found, question = self.found, [{"role": "user", "content": "What is the weather?"}]
        try:
            found.renders = ""
            self.tokenizer.render_text(question, tools=list(TOOLS))
            words = self.tokenizer.words
        except ChatNotRendered as error:
            found.renders = str(error)
            return found
        found.format, found.writes_calls = words.format.origin, words.proof.writes_calls
        found.tried = "; ".join(words.tried) if words.refusal else ""
        thinks = words.format.reasoning is not None
        thought = {"reasoning_content": THOUGHT} if thinks else {}
        if words.proof.writes_calls:
            await self._calls(question)
        await self._turns(question, thought)
        return found

    async def _calls(self, question: list[dict[str, Any]]) -> None:
        found, one = self.found, self.written(calling((FIRST, _ARGUMENTS)), question)
        whole = (await self.ask(question, one))["choices"][0]
        found.one = _calls(whole) == [(FIRST, _ARGUMENTS)]
        deltas = [c for chunk in await self.ask(question, one, stream=True) for c in chunk["choices"]]
        calls = [call for each in deltas for call in each["delta"].get("tool_calls") or ()]
        text = "".join(each["delta"].get("content") or "" for each in deltas)
        functions = [call["function"] for call in whole["message"].get("tool_calls") or ()]
        same = (text, [call["function"] for call in calls]) == (whole["message"]["content"] or "", functions)
        found.streamed = same and deltas[-1]["finish_reason"] == whole["finish_reason"]
        try:
            both = self.written(calling((FIRST, _ARGUMENTS), (SECOND, {"zqa": "Rome"})), question)
            if SECOND in both:
                answered = (await self.ask(question, both))["choices"][0]
                found.several = _calls(answered) == [(FIRST, _ARGUMENTS), (SECOND, {"zqa": "Rome"})]
        except REFUSALS:
            found.several = None
        short = one[: one.index("two words")]
        found.cut = await self._stays_text(question, short, cut=True)
        if (broken := one.replace('"two words"', '"two words')) != one:
            found.malformed = await self._stays_text(question, broken)

    async def _stays_text(self, question: list[dict[str, Any]], text: str, **fields: Any) -> bool:
        answered = (await self.ask(question, text, **fields))["choices"][0]
        return not _calls(answered) and FIRST in (answered["message"]["content"] or "")

    async def _turns(self, question: list[dict[str, Any]], thought: dict[str, str]) -> None:
        """A call, another one, an answer; the user's next question, and an answer."""
        found, messages, tokens, said = self.found, list(question), list[CallTokens](), "\0"
        steps: list[dict[str, Any]] = [{"role": "assistant", "content": SAID, **thought}] * 2
        if found.writes_calls:
            calls = [calling((FIRST, _ARGUMENTS)), calling((FIRST, {"zqa": "Rome"}))]
            steps = [*({**call, **thought} for call in calls), *steps]
        for number, step in enumerate(steps, 1):
            try:
                text = self.written(step, messages)
                response = await self.ask(messages, text)
            except REFUSALS as error:
                found.failed[f"turn {number}"] = str(error)
                if number == 2 and found.writes_calls:
                    found.null = False
                return
            choice = response["choices"][0]
            tokens.append(
                CallTokens("", response["prompt_token_ids"], choice["token_ids"], [0.0] * len(choice["token_ids"]))
            )
            prompt = self.tokenizer.decode_all(response["prompt_token_ids"])
            if cause := response.get("broken_prefix"):
                found.drift.append(f"{'no_end_mark' if prompt.startswith(said) else cause} ({number})")
            said = (prompt + text).rstrip()
            message = choice["message"]
            thinks = THOUGHT in text
            if thinks and number == 1:
                found.reasoning = (message.get("reasoning_content") or "").strip() == THOUGHT
            if found.writes_calls and number == 2:
                found.null = True
                if found.reasoning is not None:
                    found.kept = THOUGHT in prompt
            loop = len(steps) - 1
            if number <= loop:
                found.loop_rows = len(merge(tokens))
            found.rows = len(merge(tokens))
            messages.append({key: message[key] for key in ("role", "content", "tool_calls") if key in message})
            results = [
                {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": "17 degrees"}
                for call in message.get("tool_calls") or ()
            ]
            messages += results or [{"role": "user", "content": "And tomorrow?"}]


def _calls(choice: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]


async def played(source: str, **options: Any) -> Played:
    """What the server makes of a template; the options are those of `tokenizer_of`."""
    return await Player(tokenizer_of(source, **options)).play()
