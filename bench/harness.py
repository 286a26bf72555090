"""CPU time and memory of an LLM call inside a rollout: the client library alone, and with capture.

Every row runs in a process of its own against a stub server in another one; the steps of the whole epoch are kept, as
in a run. The rows take turns, and each shows its best, because other work on the machine only adds time.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nat.cli import event_loop

CONCURRENCY = 16
GENERATIONS = 4
ROUNDS = 3
Chat = Callable[[list[Any]], Awaitable[Any]]
"""Gives the model's next message for a list of messages."""
Row = dict[str, float]


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
    Case("OpenAI SDK alone, with logprobs", "sdk_logprobs"),
    Case("captured, as in `nat eval`", "captured"),
    Case("captured, logprobs and ids, as in `nat finetune`", "captured_exact"),
    Case("the same, 100 turns", "captured_exact", examples=2, turns=100),
    Case("OpenAI SDK alone, 100 turns", "sdk", examples=2, turns=100),
)


def main() -> None:
    """Print the table; what is added is added to the SDK alone with as many turns."""
    found = [(case, row, 1000 * row["cpu"] / row["calls"]) for case, row in best_rows()]
    alone = {case.turns: cpu for case, _, cpu in reversed(found) if case.client == "sdk"}
    print("| client | CPU per call, ms | added, ms | peak memory, MB |\n|---|---:|---:|---:|")
    for case, row, cpu in found:
        added = f"{cpu - alone[case.turns]:.2f}" if cpu > alone[case.turns] else ""
        print(f"| {case.title} | {cpu:.2f} | {added} | {row['peak']:.0f} |")


def best_rows() -> Iterator[tuple[Case, Row]]:
    """Give the best row of each case; each row is measured in a process of its own."""
    stub = subprocess.Popen([sys.executable, "-m", "bench.stub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert stub.stdin is not None
    assert stub.stdout is not None
    base_url = f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"
    try:
        rounds = [[_row(base_url, case) for case in CASES] for _ in range(ROUNDS)]
    finally:
        stub.stdin.close()
        stub.wait()
    for case, rows in zip(CASES, zip(*rounds, strict=True), strict=True):
        yield case, min(rows, key=lambda row: row["cpu"])


def _row(base_url: str, case: Case) -> Row:
    command = [sys.executable, "-m", "bench.harness", base_url, json.dumps(asdict(case))]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    row: Row = json.loads(told)
    return row


async def measure(base_url: str, case: Case) -> Row:
    """Measure one row of the table."""
    from nat.plugins.llms.client import open_client
    from nat.plugins.llms.openai import OpenAIModelConfig

    config = OpenAIModelConfig(model_name="stub", base_url=base_url)
    async with open_client(config, llm_name="stub") as captured:
        chat, close = _chat(case.client, base_url, captured)
        row = await play(chat, case)
        await close()
    return row


async def play(chat: Chat, case: Case) -> Row:
    """Run all rollouts of a case after one for warm-up; CPU is in seconds."""
    from nat.builder.context import ContextState
    from nat.capture.context import CapturePolicy, capturing

    exact = case.client == "captured_exact"
    limit = asyncio.Semaphore(CONCURRENCY)
    kept: list[list[Any]] = []

    async def rollout(seed: int) -> None:
        steps: list[Any] = []
        policy = CapturePolicy(logprobs=exact, token_ids=exact, seed=seed)
        async with limit:
            with ContextState().active() as context, capturing(policy):
                context.intermediate_step_manager.subscribe(steps.append)
                messages: list[Any] = [{"role": "system", "content": f"You play game {seed}. " * 5}]
                for turn in range(case.turns):
                    messages.append({"role": "user", "content": f"Turn {turn} of game {seed}: what now?"})
                    messages.append(await chat(messages))
        kept.append(steps)

    await rollout(-1)
    kept.clear()
    before, started = _peak(), time.process_time()
    await asyncio.gather(*(rollout(seed) for seed in range(case.examples * GENERATIONS)))
    cpu = time.process_time() - started
    calls = case.examples * GENERATIONS * case.turns
    recorded = sum(len(steps) for steps in kept)
    assert recorded == (2 * calls if case.client.startswith("captured") else 0)
    return {"calls": calls, "cpu": cpu, "before": before, "peak": _peak()}


def _chat(client: str, base_url: str, captured: Any) -> tuple[Chat, Callable[[], Awaitable[None]]]:
    """Give the function that makes a call, and the one that closes its client."""
    if client == "httpx":
        import httpx

        http = httpx.AsyncClient()

        async def post(messages: list[Any]) -> dict[str, str]:
            response = await http.post(f"{base_url}/chat/completions", json={"model": "stub", "messages": messages})
            return {"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]}

        return post, http.aclose
    from openai import AsyncOpenAI

    sdk: Any = captured if client.startswith("captured") else AsyncOpenAI(base_url=base_url, api_key="none")
    options: dict[str, Any] = (
        {"extra_body": {"logprobs": True, "return_token_ids": True}} if "logprobs" in client else {}
    )

    async def create(messages: list[Any]) -> dict[str, str]:
        completion = await sdk.chat.completions.create(model="stub", messages=messages, **options)
        return {"role": "assistant", "content": completion.choices[0].message.content}

    return create, sdk.close


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(event_loop.run(measure(sys.argv[1], Case(**json.loads(sys.argv[2]))))))
    else:
        main()
