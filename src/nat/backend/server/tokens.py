"""POST /tokenize and POST /detokenize, in vLLM's shape: what a client needs to compare two servers' tokenizers."""

import asyncio

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from nat.backend.server.bodies import json_answer, read_chat
from nat.backend.server.service import Service
from nat.http.errors import ApiError
from nat.wire.openai_requests import DetokenizeIds, TokenizeText
from nat.wire.openai_responses import DetokenizedText, TokenizedText


class TokenRoutes:
    """Text to token ids and back, with the model's tokenizer."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, http: HttpRequest) -> Response:
        """The ids of a text."""
        body = await read_chat(http, TokenizeText)
        self._check_model(body.model)
        tokenizer = self._service.loaded.tokenizer
        encode = tokenizer.encode if body.add_special_tokens else tokenizer.encode_rendered
        ids = await asyncio.to_thread(encode, body.prompt)
        return json_answer(TokenizedText(count=len(ids), max_model_len=self._service.loaded.max_seq_length, tokens=ids))

    async def detokenize(self, http: HttpRequest) -> Response:
        """The text of some ids, special tokens included; an id that the tokenizer does not have gives no text."""
        body = await read_chat(http, DetokenizeIds)
        self._check_model(body.model)
        if (outside := next((token for token in body.tokens if not 0 <= token < 2**31), None)) is not None:
            raise ApiError(f"{outside} is no token id", param="tokens")
        decode = self._service.loaded.tokenizer.decode_all
        text = await asyncio.to_thread(decode, body.tokens)
        return json_answer(DetokenizedText(prompt=text))

    def _check_model(self, name: str | None) -> None:
        if name is not None:
            self._service.check_model(name)
