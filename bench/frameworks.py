"""CPU time and memory of a LangChain call inside a rollout: LangChain alone, and with capture.

Like `harness`, but in LangChain's own environment and without uvloop. The bench makes a missing environment first
(`conformance/environments.py`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.harness import Case, Row, begin, best_rows, play, show
from conformance.environments import python_of

CASES = (
    Case("LangChain alone", "langchain"),
    Case("LangChain alone, with logprobs and ids", "langchain_exact"),
    Case("captured, as in `nat eval`", "captured"),
    Case("captured, logprobs and ids, as in `nat finetune`", "captured_exact"),
    Case("LangChain alone, with logprobs and ids, 100 turns", "langchain_exact", examples=2, turns=100),
    Case("captured, logprobs and ids, 100 turns", "captured_exact", examples=2, turns=100),
)


def main() -> None:
    """Print the table."""
    python = str(python_of("langchain"))
    show(best_rows(CASES, python, "bench.frameworks"))


async def measure(base_url: str, case: Case) -> Row:
    """Measure one row of the table."""
    async with _model(base_url, case.client) as model:
        return await play(model.ainvoke, case)


@asynccontextmanager
async def _model(base_url: str, client: str) -> AsyncIterator[Any]:
    """LangChain's own chat model, or the harness's."""
    from langchain_openai import ChatOpenAI

    from nat.plugins.frameworks.langchain import open_model
    from nat.plugins.llms.openai import OpenAIModelConfig

    if client.startswith("captured"):
        async with open_model(OpenAIModelConfig(model_name="stub", base_url=base_url), llm_name="stub") as model:
            yield model
        return
    asked = {"extra_body": {"logprobs": True, "return_token_ids": True}} if client == "langchain_exact" else {}
    yield ChatOpenAI(model="stub", base_url=base_url, api_key="none", **asked)


if __name__ == "__main__":
    begin(main, measure)
