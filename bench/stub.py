"""An OpenAI-compatible server that answers at once with 32 tokens; prints its port and ends with its parent's pipe."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

TOKENS = 32
TOKEN_SECONDS = 0.005
"""Seconds between two events of a stream."""
WORDS = [f" word{i}" for i in range(TOKENS)]


def _answer(*, detailed: bool) -> bytes:
    """The answer with or without logprobs and ids."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(WORDS)},
        "finish_reason": "stop",
        "logprobs": None,
    }
    body: dict[str, Any] = {
        "id": "cmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "system_fingerprint": "stub@0",
        "choices": [choice],
        "usage": {"prompt_tokens": 64, "completion_tokens": TOKENS, "total_tokens": 64 + TOKENS},
    }
    if detailed:
        choice["logprobs"] = {
            "content": [
                {"token": word, "logprob": -0.01 * i - 0.123456, "bytes": list(word.encode()), "top_logprobs": []}
                for i, word in enumerate(WORDS)
            ],
            "refusal": None,
        }
        choice["token_ids"] = list(range(1000, 1000 + TOKENS))
        body["prompt_token_ids"] = list(range(2000, 2064))
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


def _event(data: str) -> bytes:
    """An event of a stream, as a chunk of the body."""
    content = f"data: {data}\n\n".encode()
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _events(*, detailed: bool) -> list[bytes]:
    """The answer as events, one per token."""
    head = {"id": "cmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    events = []
    for i, word in enumerate(WORDS):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": word}, "finish_reason": None, "logprobs": None}
        if detailed:
            token = {"token": word, "logprob": -0.01 * i - 0.123456, "bytes": list(word.encode()), "top_logprobs": []}
            choice |= {"logprobs": {"content": [token], "refusal": None}, "token_ids": [1000 + i]}
        prompt = {"prompt_token_ids": list(range(2000, 2064))} if detailed and i == 0 else {}
        events.append(_event(json.dumps({**head, **prompt, "choices": [choice]})))
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}]}
    opening = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [opening, *events, _event(json.dumps(end)), _event("[DONE]") + b"0\r\n\r\n"]


PLAIN_EVENTS, DETAILED_EVENTS = _events(detailed=False), _events(detailed=True)
PLAIN, DETAILED = _answer(detailed=False), _answer(detailed=True)


class Stub(asyncio.Protocol):
    """One connection with sequential requests that have a content length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffered = b""

    def data_received(self, data: bytes) -> None:
        self.buffered += data
        head, separator, body = self.buffered.partition(b"\r\n\r\n")
        if not separator:
            return
        if b"content-length:" not in head.lower():  # a health check
            self.transport.close()
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self.buffered = body[length:]
            self.answer(head, body[:length])

    def answer(self, head: bytes, body: bytes) -> None:
        """Answer a request; every path is a chat."""
        detailed = b'"logprobs":true' in body[-200:]
        if b'"stream":true' in body or b'"stream": true' in body:
            self._stream(iter(DETAILED_EVENTS if detailed else PLAIN_EVENTS))
        else:
            self.transport.write(DETAILED if detailed else PLAIN)

    def _stream(self, events: Iterator[bytes]) -> None:
        """Write one event per token."""
        event = next(events, None)
        if event is not None:
            self.transport.write(event)
            asyncio.get_running_loop().call_later(TOKEN_SECONDS, self._stream, events)


async def main() -> None:
    """Serve until the parent closes stdin."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
