"""POST /v1/completions; and /tokenize and /detokenize in vLLM's shape, to compare two servers' tokenizers."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from nat.backend.inference.sequence import Delta, Request, Sequence
from nat.backend.server.bodies import chunk_event, event_stream, json_answer, read_chat
from nat.backend.server.generation import complete, start_stream
from nat.backend.server.logprobs import LogprobWriter
from nat.backend.server.service import Service, usage_of
from nat.http.errors import ApiError
from nat.wire.openai_api import Choice, Completion, CompletionRequest, DetokenizedText, DetokenizeIds, TokenizeText


class CompletionRoute:
    """Continues texts or token ids."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, http: HttpRequest) -> Response:
        body = self._service.with_training_fields(
            await read_chat(http, CompletionRequest, ignored=self._service.ignored)
        )
        self._service.check_model(body.model)
        prompts = await asyncio.to_thread(lambda: [self._encode(each, body) for each in body.prompt])
        if body.prompt_logprobs is not None and not self._service.engine.scores_prompts:
            raise ApiError(
                "prompt_logprobs: with engine vllm, this server does not score prompts; ask a vLLM server itself",
                param="prompt_logprobs",
            )
        sequences = self._service.sequences(
            body, prompts, top_logprobs=body.logprobs or 0, prompt_logprobs=body.prompt_logprobs
        )
        writer = _TextWriter(self._service, body)
        if body.stream:
            request, deltas = start_stream(self._service.engine, sequences, model=body.model)
            return event_stream(writer.stream(request, deltas))
        request = await complete(self._service.engine, sequences, http, model=body.model)
        return await self._service.written(request, writer.whole)

    def _encode(self, prompt: str | list[int], body: CompletionRequest) -> list[int]:
        if isinstance(prompt, str):
            tokenizer = self._service.loaded.tokenizer
            ids = tokenizer.encode(prompt, special=body.add_special_tokens)
            if ids[:2] == [tokenizer.hf.bos_token_id] * 2:
                self._service.warn_once(
                    "a prompt of /v1/completions begins with %s twice: its text has it, the tokenizer adds it; send "
                    "`add_special_tokens: false` with a rendered chat",
                    tokenizer.hf.bos_token,
                )
            return ids
        size = self._service.loaded.vocab_size
        if (outside := next((token for token in prompt if not 0 <= token < size), None)) is not None:
            raise ApiError(f"token id {outside} is outside the model's vocabulary of {size}", param="prompt")
        return prompt


class _TextWriter:
    """Writes the response to one request, whole or in chunks."""

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        self._service = service
        self._body = body
        self._id = f"cmpl-{secrets.token_hex(12)}"
        self._logprobs = LogprobWriter(service.loaded.tokenizer, as_token_ids=body.return_tokens_as_token_ids)

    def whole(self, request: Request) -> Completion:
        self._service.remember(request.sequences)
        choices = [self._choice(s, s, self._service.text(s), offset=0, first=True) for s in request.sequences]
        return {**self._answer(request, choices), "usage": usage_of(request.sequences)}

    async def stream(self, request: Request, deltas: AsyncIterator[list[Delta]]) -> AsyncIterator[bytes]:
        """What each step adds, then the usage if it was requested."""
        offsets = [0] * len(request.sequences)
        first = set(range(len(request.sequences)))
        async with aclosing(deltas):  # type: ignore[type-var]  # an async generator
            async for news in deltas:
                parts = []
                self._service.remember([request.sequences[delta.index] for delta in news if delta.finish_reason])
                for delta in news:
                    at = delta.index
                    sequence, offset = request.sequences[at], offsets[at]
                    choice = self._choice(delta, sequence, delta.text, offset=offset, first=at in first)
                    offsets[at] += len(delta.text)
                    first.discard(at)
                    parts.append(chunk_event(self._answer(request, [choice])))
                yield b"".join(parts)
        if self._body.stream_options.include_usage:
            yield chunk_event({**self._answer(request, []), "usage": usage_of(request.sequences)})

    def _choice(self, part: Sequence | Delta, sequence: Sequence, text: str, *, offset: int, first: bool) -> Choice:
        """What a part of an answer adds to it, or the whole; the `first` one has the prompt."""
        body = self._body
        choice = Choice(index=part.index, text=text, logprobs=None, finish_reason=part.finish_reason)
        if body.logprobs is not None:
            choice["logprobs"] = self._logprobs.text(part.token_ids, part.logprobs, part.top_logprobs, offset=offset)
            if body.logprobs_temperature is not None:
                choice["logprobs_temperature"] = body.logprobs_temperature
        if body.return_token_ids:
            choice["token_ids"] = part.token_ids
            if first:
                choice["prompt_token_ids"] = sequence.prompt_ids
        if body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self._logprobs.prompt(sequence.prompt_scores)
        if part.finish_reason is not None and sequence.stop_reason is not None:
            choice["stop_reason"] = sequence.stop_reason
        return choice

    def _answer(self, request: Request, choices: list[Choice]) -> Completion:
        return Completion(
            id=self._id,
            object="text_completion",
            created=self._service.now(),
            model=self._body.model,
            system_fingerprint=request.policy_version,
            choices=choices,
        )


class TokenRoutes:
    """Text to token ids and back, with the model's tokenizer."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, http: HttpRequest) -> Response:
        """The ids of a text."""
        body = await read_chat(http, TokenizeText)
        self._service.check_model(body.model)
        tokenizer = self._service.loaded.tokenizer
        ids = await asyncio.to_thread(tokenizer.encode, body.prompt, special=body.add_special_tokens)
        limit = self._service.loaded.max_seq_length
        return json_answer({"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": None})

    async def detokenize(self, http: HttpRequest) -> Response:
        """The text of some ids, special tokens included; an id that the tokenizer does not have gives no text."""
        body = await read_chat(http, DetokenizeIds)
        self._service.check_model(body.model)
        if (outside := next((token for token in body.tokens if not 0 <= token < 2**31), None)) is not None:
            raise ApiError(f"{outside} is no token id", param="tokens")
        decode = self._service.loaded.tokenizer.decode_all
        text = await asyncio.to_thread(decode, body.tokens)
        return json_answer(DetokenizedText(prompt=text))
