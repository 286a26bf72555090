"""vLLM as the server, on a CPU: the token ids that it reports make exact rows. Its environment is large."""

import asyncio
import contextlib
import itertools
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conformance.engines.vllm import vllm_command
from conformance.environments import outside
from openai import AsyncOpenAI
from transformers import AutoTokenizer

from fakes.tiny_model import make_tiny_model
from nat.backend.tokenizer import ChatTokenizer
from nat.capture.context import CapturePolicy, capturing
from nat.capture.http import CapturingAsyncClient
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.llm_call import LLMCall
from nat.finetuning.trajectories.calls import SeenCall, tokens_of_call
from nat.finetuning.trajectories.messages import conversations_and_rows
from nat.finetuning.trajectories.rows import broken_by

pytestmark = pytest.mark.large

START_DEADLINE_S = 300
TURNS, GENERATIONS = 3, 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head size of 32, the smallest that vLLM supports."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden=128)


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of vLLM with the model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    command = [*shlex.split(vllm_command()), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(model), "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"]
    settings = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**outside(), **settings}, start_new_session=True
        )
    try:
        _await_health(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(60)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).is_success:
                return
        time.sleep(1)
    raise RuntimeError(f"vLLM did not start within {START_DEADLINE_S} s; it wrote\n{log.read_text()[-4000:]}")


async def _rollout(url: str, seed: int, *, stream: bool) -> list[LLMCall]:
    """The captured calls of an agent's few turns."""
    steps, said = [], [{"role": "user", "content": "the"}]
    async with CapturingAsyncClient(Tap(steps.append), timeout=120) as http:
        client = AsyncOpenAI(base_url=url, api_key="none", http_client=http, max_retries=0)
        with capturing(CapturePolicy(logprobs=True, token_ids=True, seed=seed)):
            for _ in range(TURNS):
                asked = {"model": "tiny", "messages": said, "max_tokens": 12}
                if stream:
                    chunks = [c async for c in await client.chat.completions.create(**asked, stream=True)]
                    text = "".join(choice.delta.content or "" for c in chunks for choice in c.choices)
                else:
                    answer = await client.chat.completions.create(**asked)
                    text = answer.choices[0].message.content or ""
                said = [*said, {"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    return [s.metadata.llm_call for s in steps if s.event_type is IntermediateStepType.LLM_END]


@pytest.mark.parametrize("stream", [False, True])
async def test_rows_are_exact_with_vllm(url: str, model: Path, stream: bool) -> None:
    """Each row has exactly vLLM's token ids; a new row begins where a prompt does not continue them."""
    tokenizer = ChatTokenizer(AutoTokenizer.from_pretrained(model))
    rollouts = await asyncio.gather(*(_rollout(url, seed, stream=stream) for seed in range(GENERATIONS)))
    broken = 0
    for calls in rollouts:
        assert len(calls) == TURNS
        assert all(tokens_of_call(call) is not None for call in calls)
        assert calls[0].prompt_token_ids == tokenizer.render_chat(calls[0].messages)
        assert all(call.broken_prefix is None for call in calls)
        seen = [SeenCall(call=call, function="") for call in calls]
        threads, rows = conversations_and_rows(seen)
        broken_here = broken_by(threads)
        goes_on = [
            later.prompt_token_ids[: len(held)] == held
            for earlier, later in itertools.pairwise(calls)
            for held in [earlier.prompt_token_ids + earlier.token_ids]
        ]
        assert len(rows) == 1 + goes_on.count(False)
        assert set(broken_here) <= {"retokenized"}
        sampled = [
            (token, logprob)
            for row in rows
            for span in row.spans
            for token, logprob in zip(row.token_ids[span.start : span.stop], span.logprobs or (), strict=True)
        ]
        assert sampled == [pair for c in calls for pair in zip(c.token_ids, c.logprobs, strict=True)]
        broken += sum(broken_here.values())
    assert broken > 0, "random weights say what no tokenizer would split so, or this proves nothing"
