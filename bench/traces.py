"""CPU time that traces add to a recorded LLM call, on the event loop and in the thread that sends them.

Like `harness`, with exporters of `general.telemetry.tracing`: spans are made, encoded and sent by OTLP to the stub, or
written to a file. The rows with traces end when all spans have been sent.
"""

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.harness import Case, Row, begin, best_rows, play

CASES = (
    Case("none", "off"),
    Case("`otelcollector`", "otelcollector"),
    Case("`file`", "file"),
    Case("`otelcollector`, 100 turns", "otelcollector", examples=2, turns=100),
)


def main() -> None:
    """Print the table."""
    print("| traces | on the event loop, ms per call | in the background, ms per call |\n|---|---:|---:|")
    for case, row in best_rows(CASES, sys.executable, "bench.traces"):
        loop, behind = 1000 * row["loop"] / row["calls"], 1000 * row["behind"] / row["calls"]
        print(f"| {case.title} | {loop:.3f} | {behind:.3f} |")


async def measure(base_url: str, case: Case) -> Row:
    """Measure one row of the table; the last span has been sent when it ends."""
    from nat.plugins.llms.client import open_client
    from nat.plugins.llms.openai import OpenAIModelConfig
    from nat.rollout.rollout import Rollout
    from nat.rollout.traces import opened_traces

    on_loop = 0.0
    config = OpenAIModelConfig(model_name="stub", base_url=base_url)
    with tempfile.TemporaryDirectory() as folder:
        tracing = _tracing(case.client, base_url, Path(folder))
        async with open_client(config, llm_name="stub") as sdk:

            async def chat(messages: list[Any]) -> dict[str, str | None]:
                completion = await sdk.chat.completions.create(model="stub", messages=messages)
                return {"role": "assistant", "content": completion.choices[0].message.content}

            behind = _behind()
            async with opened_traces(tracing) as traces:

                def ended(steps: list[Any]) -> None:
                    nonlocal on_loop
                    began = time.thread_time()
                    rollout = Rollout("0", 0, "", steps, None, None, datetime.now(UTC), 1.0)
                    traces.ended(rollout, "", is_judged=False)
                    on_loop += time.thread_time() - began

                captured = Case(case.title, "captured_exact", case.examples, case.turns)
                row = await play(chat, captured, ended)
    return row | {"loop": on_loop, "behind": _behind() - behind}


def _behind() -> float:
    """CPU seconds of all threads but this one."""
    return time.process_time() - time.thread_time()


def _tracing(name: str, base_url: str, folder: Path) -> dict[str, Any]:
    from nat.plugins.telemetry import OtelCollectorConfig, SpanFileConfig

    if name == "otelcollector":
        endpoint = f"{base_url}/traces"
        return {"bench": OtelCollectorConfig(project="bench", endpoint=endpoint, max_queue_size=1_000_000)}
    return {} if name == "off" else {"bench": SpanFileConfig(project="bench", output_path=str(folder / "spans.jsonl"))}


if __name__ == "__main__":
    begin(main, measure)
