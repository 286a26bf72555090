"""CPU time and memory of an LLM call inside a rollout: the client library alone, and with capture.

Every row runs in a process of its own against a stub server in another one; the steps of the whole epoch are kept, as
a run keeps them. The rows take turns, round after round, and each shows its best: other work on the machine only adds.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from nat.cli import event_loop

CONCURRENCY = 16
GENERATIONS = 4
ROUNDS = 2
Chat = Callable[[list[dict[str, Any]]], Awaitable[str]]


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    title: str
    client: str
    examples: int = 100
    turns: int = 8


CASES = (
    Case("httpx alone", "httpx"),
    Case("OpenAI SDK alone", "sdk"),
    Case("OpenAI SDK alone, asked for logprobs", "sdk_logprobs"),
    Case("captured, as in `nat eval`", "captured"),
    Case("captured, logprobs and ids, as in `nat finetune`", "captured_exact"),
    Case("the same, 100 turns", "captured_exact", examples=2, turns=100),
    Case("OpenAI SDK alone, 100 turns", "sdk", examples=2, turns=100),
)


def main() -> None:
    """Print the table."""
    stub = subprocess.Popen([sys.executable, "-m", "bench.stub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert stub.stdin is not None
    assert stub.stdout is not None
    base_url = f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"
    print("| client | calls | CPU ms per call | memory before, MB | peak, MB |\n|---|---|---|---|---|")
    try:
        rounds = [[_row(base_url, case) for case in CASES] for _ in range(ROUNDS)]
        for case, rows in zip(CASES, zip(*rounds, strict=True), strict=True):
            row = min(rows, key=lambda row: row["cpu"])
            print(f"| {case.title} | {row['calls']} | {row['cpu']:.2f} | {row['before']:.0f} | {row['peak']:.0f} |")
    finally:
        stub.stdin.close()
        stub.wait()


def _row(base_url: str, case: Case) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.harness", base_url, json.dumps(asdict(case))]
    row: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603 - our own
    return row


async def measure(base_url: str, case: Case) -> dict[str, float]:
    """Play all rollouts of one case."""
    from nat.builder.context import ContextState  # noqa: PLC0415 - not in the rows of others
    from nat.capture.policy import CapturePolicy, capturing  # noqa: PLC0415
    from nat.plugins.llms.client import open_client  # noqa: PLC0415
    from nat.plugins.llms.openai import OpenAIModelConfig  # noqa: PLC0415

    exact = case.client == "captured_exact"
    limit = asyncio.Semaphore(CONCURRENCY)
    kept: list[list[Any]] = []

    async def rollout(chat: Chat, seed: int) -> None:
        steps: list[Any] = []
        policy = CapturePolicy(logprobs=exact, token_ids=exact, seed=seed)
        async with limit:
            with ContextState().active() as context, capturing(policy):
                context.intermediate_step_manager.subscribe(steps.append)
                messages = [{"role": "system", "content": f"You play game {seed}. " * 5}]
                for turn in range(case.turns):
                    messages.append({"role": "user", "content": f"Turn {turn} of game {seed}: what now?"})
                    messages.append({"role": "assistant", "content": await chat(messages)})
        kept.append(steps)

    config = OpenAIModelConfig(model_name="stub", base_url=base_url)
    async with open_client(config, llm_name="stub") as captured:
        chat, close = _chat(case.client, base_url, captured)
        await rollout(chat, -1)
        kept.clear()
        before, started = _peak(), time.process_time()
        await asyncio.gather(*(rollout(chat, seed) for seed in range(case.examples * GENERATIONS)))
        cpu = time.process_time() - started
        await close()
    calls = case.examples * GENERATIONS * case.turns
    recorded = sum(len(steps) for steps in kept)
    assert recorded == (2 * calls if case.client.startswith("captured") else 0)
    return {"calls": calls, "cpu": 1000 * cpu / calls, "before": before, "peak": _peak()}


def _chat(client: str, base_url: str, captured: Any) -> tuple[Chat, Callable[[], Awaitable[None]]]:
    """How a turn is asked for, and how to close what that needs."""
    if client == "httpx":
        import httpx  # noqa: PLC0415 - only here

        http = httpx.AsyncClient()

        async def post(messages: list[dict[str, Any]]) -> str:
            response = await http.post(f"{base_url}/chat/completions", json={"model": "stub", "messages": messages})
            content: str = response.json()["choices"][0]["message"]["content"]
            return content

        return post, http.aclose
    from openai import AsyncOpenAI  # noqa: PLC0415 - only here

    sdk: Any = captured if client.startswith("captured") else AsyncOpenAI(base_url=base_url, api_key="none")
    options: dict[str, Any] = (
        {"extra_body": {"logprobs": True, "return_token_ids": True}} if "logprobs" in client else {}
    )

    async def create(messages: list[dict[str, Any]]) -> str:
        completion = await sdk.chat.completions.create(model="stub", messages=messages, **options)
        content: str = completion.choices[0].message.content
        return content

    return create, sdk.close


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) == 3:  # noqa: PLR2004 - address and case: one row
        print(json.dumps(event_loop.run(measure(sys.argv[1], Case(**json.loads(sys.argv[2]))))))
    else:
        main()
