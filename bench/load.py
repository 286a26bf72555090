"""Load for servers of an OpenAI-compatible API: chats of exact length, over keep-alive connections of our own.

Each prompt is drawn anew, so no server finds one in its prefix cache; only the turns of a conversation share one.
"""

import asyncio
import json
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.servers import Server
from bench.shapes import TEMPLATE_TOKENS, words


@dataclass(frozen=True)
class Load:
    """What the clients do at the same time."""

    chats: int
    prompt: int
    """Tokens of the prompt; in a conversation, tokens that each turn adds before its answer."""
    answer: int
    """Tokens of each answer."""
    requests: int = 1
    """Chats that a client has one after the other."""
    turns: int = 1

    @property
    def sampled(self) -> int:
        """Tokens of all answers."""
        return self.chats * self.requests * self.turns * self.answer

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return self.turns * (self.prompt + self.answer + TEMPLATE_TOKENS)

    def __str__(self) -> str:
        turns = f" x {self.turns} turns" if self.turns > 1 else ""
        return f"{self.chats}{turns}, {self.prompt} in, {self.answer} out"


class Client:
    """One keep-alive connection."""

    def __init__(self, server: Server, random: Random, vocabulary: int) -> None:
        self._server = server
        self._random = random
        self._vocabulary = vocabulary

    async def run(self, load: Load) -> list[dict[str, Any]]:
        """Send the requests, each after the answer to the one before; gives the answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=2**24)
        answers = []
        for _ in range(load.requests):
            messages: list[dict[str, str]] = []
            for _ in range(load.turns):
                messages.append(
                    {"role": "user", "content": words(self._random, load.prompt - TEMPLATE_TOKENS, self._vocabulary)}
                )
                writer.write(self._request(messages, load.answer))
                answer = await _answer(reader)
                messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
                answers.append(answer)
        writer.close()
        return answers

    def _request(self, messages: list[dict[str, str]], tokens: int) -> bytes:
        """A request as `nat finetune` makes it."""
        body = {
            "model": "bench",
            "messages": messages,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "logprobs": True,
            "return_token_ids": True,
        }
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._server.api_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    content = await reader.readexactly(length)
    if not head.startswith(b"http/1.1 200"):
        raise SystemExit(f"the server answered: {content.decode()}")
    answer: dict[str, Any] = json.loads(content)
    return answer


def play(server: Server, load: Load, *, seed: str, vocabulary: int) -> None:
    """Put the load on a server, and check that all prompts and answers had the wanted lengths."""
    answers = asyncio.run(_play(server, load, seed, vocabulary))
    for usage in (answer["usage"] for of_client in answers for answer in of_client):
        assert usage["completion_tokens"] == load.answer, usage
        assert load.turns > 1 or usage["prompt_tokens"] == load.prompt, usage


async def _play(server: Server, load: Load, seed: str, vocabulary: int) -> list[list[dict[str, Any]]]:
    clients = [Client(server, Random(f"{seed}/{number}"), vocabulary) for number in range(load.chats)]
    return await asyncio.gather(*(client.run(load) for client in clients))
