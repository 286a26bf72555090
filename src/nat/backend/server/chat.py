"""POST /v1/chat/completions."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from string import ascii_letters, digits
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from nat.backend.inference.sequence import Delta, Request, Sequence
from nat.backend.server.bodies import chunk_event, event_stream, read_chat
from nat.backend.server.continuation import Chat, Continuations, Prompt
from nat.backend.server.generation import complete, start_stream
from nat.backend.server.logprobs import LogprobWriter
from nat.backend.server.service import Service, usage_of
from nat.backend.tokenizer import ChatNotRendered, template_message
from nat.backend.words.calls import Call
from nat.backend.words.reader import AnswerReader
from nat.errors import ModelNotSupported
from nat.http.errors import ApiError
from nat.wire.openai_api import SESSION_HEADER, AnswerMessage, CallStatus, ChatCompletionRequest, Choice, Completion

_OF_IDS = ascii_letters + digits
"""Of which an id has nine; Mistral's templates refuse others when they are sent back."""


class ChatRoute:
    """Answers chat requests, whole or streamed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._continuations = Continuations(service.loaded.tokenizer)

    async def handle(self, http: HttpRequest) -> Response:
        service = self._service
        body = service.with_training_fields(await read_chat(http, ChatCompletionRequest, ignored=service.ignored))
        service.check_model(body.model)
        session = http.headers.get(SESSION_HEADER, "")
        prompt = await self._prompt(body, session)
        sequences = service.sequences(body, [prompt.ids], top_logprobs=body.top_logprobs, special=True)

        def keep(answers: list[Sequence]) -> None:
            service.remember(answers)
            for s in answers:
                text = service.answer_text(s)
                self._continuations.remember(prompt, text, s.token_ids, tools=body.calls_tools, session=session)

        writer = _ChatWriter(service, body, prompt, keep)
        if body.stream:
            request, deltas = start_stream(service.engine, sequences, model=body.model)
            return event_stream(writer.stream(request, deltas))
        request = await complete(service.engine, sequences, http, model=body.model)
        return await service.written(request, writer.whole)

    async def _prompt(self, body: ChatCompletionRequest, session: str) -> Prompt:
        service = self._service

        def prepared() -> Prompt:
            words = service.loaded.tokenizer.words
            if body.calls_tools and words.refusal and not words.proof.shows_tools:
                service.warn_once("tool calls may be lost: %s", words.refusal)
            tools = [tool.model_dump(exclude_unset=True) for tool in body.tools] if body.calls_tools else None
            messages = [template_message(message.model_dump(exclude_none=True)) for message in body.messages]
            chat = Chat(messages, tools, body.chat_template_kwargs, words.format)
            chat = self._continuations.with_reasoning(chat, session=session)
            text = service.loaded.tokenizer.render_text(
                chat.messages, tools=chat.tools, template_arguments=chat.template_arguments
            )
            return self._continuations.prompt(chat, text, session=session)

        try:
            return await asyncio.to_thread(prepared)
        except ChatNotRendered as error:
            raise ApiError(
                f"the model's chat template refused the {error.param}: {error}", param=error.param
            ) from error
        except ModelNotSupported as error:
            raise ApiError(error.in_line, param="messages") from error


class _ChatWriter:
    """Writes the response to one request, whole or in chunks; both read the answer alike."""

    def __init__(
        self, service: Service, body: ChatCompletionRequest, prompt: Prompt, keep: Callable[[list[Sequence]], None]
    ) -> None:
        """`keep` receives finished sequences before they are sent."""
        self._service = service
        self._body = body
        self._prompt = prompt
        self._keep = keep
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._logprobs = LogprobWriter(service.loaded.tokenizer, as_token_ids=body.return_tokens_as_token_ids)

    def whole(self, request: Request) -> Completion:
        self._keep(request.sequences)
        choices = [self._choice(s, s, self._reader(), self._service.answer_text(s)) for s in request.sequences]
        answer = self._answer("chat.completion", request, choices)
        answer["usage"] = usage_of(request.sequences)
        self._add_prompt(answer)
        return answer

    async def stream(self, request: Request, deltas: AsyncIterator[list[Delta]]) -> AsyncIterator[bytes]:
        """The role, then what each step adds, then the usage if it was requested."""
        readers = [self._reader() for _ in request.sequences]
        opened = False
        async with aclosing(deltas):  # type: ignore[type-var]  # an async generator
            async for news in deltas:
                if not opened:
                    opened = True
                    role = AnswerMessage(role="assistant", content="")
                    choices = [
                        Choice(index=s.index, delta=role, logprobs=None, finish_reason=None) for s in request.sequences
                    ]
                    first = self._answer("chat.completion.chunk", request, choices)
                    self._add_prompt(first)
                    yield chunk_event(first)
                self._keep([request.sequences[delta.index] for delta in news if delta.finish_reason])
                yield b"".join(self._chunk(request, delta, readers[delta.index]) for delta in news)
        if self._body.stream_options.include_usage:
            last = self._answer("chat.completion.chunk", request, [])
            last["usage"] = usage_of(request.sequences)
            yield chunk_event(last)

    def _reader(self) -> AnswerReader:
        words = self._service.loaded.tokenizer.words.format
        return AnswerReader(
            words if self._body.calls_tools else words.without_calls,
            tools=self._prompt.tools,
            prefix=words.prefix(self._prompt.text),
            calls_wanted=None if self._body.parallel_tool_calls else 1,
        )

    def _chunk(self, request: Request, delta: Delta, reader: AnswerReader) -> bytes:
        sequence, text = request.sequences[delta.index], delta.text
        if delta.finish_reason is not None:
            text += self._service.stop_text(sequence)
        choice = self._choice(delta, sequence, reader, text)
        wants_tokens = self._body.logprobs or self._body.return_token_ids
        if not choice["delta"] and choice["finish_reason"] is None and not wants_tokens:
            return b""
        return chunk_event(self._answer("chat.completion.chunk", request, [choice]))

    def _choice(self, part: Sequence | Delta, sequence: Sequence, reader: AnswerReader, text: str) -> Choice:
        """What a part of an answer adds to it, or the whole."""
        body, said = self._body, reader.push(text)
        first = reader.num_calls - len(said.calls)
        choice = Choice(index=part.index, logprobs=None, finish_reason=part.finish_reason)
        if part.finish_reason is not None:
            said += reader.finish()
            self._add_end(choice, sequence, reader)
        if part is sequence:
            content = said.content or (None if said.calls else "")
            message = choice["message"] = AnswerMessage(role="assistant", content=content, refusal=None)
        else:
            message = choice["delta"] = AnswerMessage()
            if said.content:
                message["content"] = said.content
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = list(map(_answered, said.calls))
            for number, call in enumerate(message["tool_calls"] if part is not sequence else (), first):
                call["index"] = number
        if body.logprobs:
            choice["logprobs"] = self._logprobs.chat(part.token_ids, part.logprobs, part.top_logprobs)
            if body.logprobs_temperature is not None:
                choice["logprobs_temperature"] = body.logprobs_temperature
        if body.return_token_ids:
            choice["token_ids"] = part.token_ids
        return choice

    def _add_end(self, choice: Choice, sequence: Sequence, reader: AnswerReader) -> None:
        if reader.num_calls:
            choice["finish_reason"] = "tool_calls"
        if sequence.stop_reason is not None:
            choice["stop_reason"] = sequence.stop_reason
        if not self._body.return_token_ids:
            return
        if self._body.calls_tools and not reader.num_calls and self._service.loaded.tokenizer.words.refusal:
            choice["lost_call"] = CallStatus.NO_FORMAT
        elif reader.lost:
            choice["lost_call"] = reader.lost[0]

    def _add_prompt(self, answer: Completion) -> None:
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = self._prompt.ids
            if self._prompt.broken is not None:
                answer["broken_prefix"] = self._prompt.broken

    def _answer(self, kind: Any, request: Request, choices: list[Choice]) -> Completion:
        return Completion(
            id=self._id,
            object=kind,
            created=self._service.now(),
            model=self._body.model,
            system_fingerprint=request.policy_version,
            choices=choices,
        )


def _answered(call: Call) -> dict[str, Any]:
    call_id = call.call_id or "".join(secrets.choice(_OF_IDS) for _ in range(9))
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
