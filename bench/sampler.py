"""Tokens per second of the embedded backend over HTTP, with the load generator beside it on the same machine.

    python bench/sampler.py --model examples/tic_tac_toe/model

Each chat asks for exactly 32 new tokens. A point is the best of several rounds, because other work on the
machine only slows a round down.
"""

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

CONCURRENCY = (1, 16, 64)
NEW_TOKENS = 32
VLLM_TOKENS_PER_SECOND = {1: 356, 16: 2300, 64: 3400}
"""Tokens per second of vLLM 0.32 on two CPU cores: measured once, with the same load and 0.8 million weights."""


class Chat:
    """One keep-alive connection that sends the same chat again and again."""

    def __init__(self, port: int, api_key: str, prompt: str, *, train: bool) -> None:
        body = {
            "model": "bench",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": NEW_TOKENS,
            "ignore_eos": True,
        }
        if train:
            body |= {"logprobs": True, "return_token_ids": True}
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._port = port
        self._request = head.encode() + content

    async def run(self, times: int) -> None:
        """Send `times` requests, each after the answer to the one before."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in range(times):
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            if not head.startswith(b"http/1.1 200"):
                raise SystemExit(f"the backend answered: {answer.decode()}")
        writer.close()


async def measure(port: int, api_key: str, concurrency: int, rounds: int, *, train: bool) -> float:
    """Best tokens per second over the rounds."""
    times = max(2, 24 // concurrency)
    best = 0.0
    for _ in range(rounds):
        chats = [Chat(port, api_key, f"Board {i}: your move?", train=train) for i in range(concurrency)]
        start = time.perf_counter()
        await asyncio.gather(*(chat.run(times) for chat in chats))
        best = max(best, concurrency * times * NEW_TOKENS / (time.perf_counter() - start))
    return best


def start_backend(model: Path, api_key: str) -> tuple[subprocess.Popen[str], int]:
    """Start the backend as a user does; it exits when its stdin closes."""
    command = [sys.executable, "-m", "nat.backend", f"--model={model}", "--served_model_name=bench", "--port=0"]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [*command, "--exit_with_parent", f"--output_dir={os.devnull}"],
        env=os.environ | {"NAT_BACKEND_API_KEY": api_key},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None, "asked for a pipe"
    for line in process.stdout:
        if line.startswith("{"):
            return process, int(json.loads(line)["port"])
    raise SystemExit("the backend ended before it was ready")


def main() -> None:
    """Print one table, for plain chats and for chats that training can use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("examples/tic_tac_toe/model"), help="checkpoint directory")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per point; the best counts")
    parser.add_argument("--port", type=int, help="measure a running backend (key in NAT_BACKEND_API_KEY)")
    options = parser.parse_args()
    process, port, api_key = None, options.port, os.environ.get("NAT_BACKEND_API_KEY", "")
    if port is None:
        api_key = secrets.token_urlsafe()
        process, port = start_backend(options.model, api_key)
    print("| concurrent chats | tokens/s | with logprobs and token ids | vLLM 0.32 |")
    print("|---:|---:|---:|---:|")
    for concurrency in CONCURRENCY:
        plain, train = (
            asyncio.run(measure(port, api_key, concurrency, options.rounds, train=train)) for train in (False, True)
        )
        print(f"| {concurrency} | {plain:,.0f} | {train:,.0f} | {VLLM_TOKENS_PER_SECOND[concurrency]:,} |")
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(timeout=30)


if __name__ == "__main__":
    main()
