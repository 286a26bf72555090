"""A teacher's scores of the student's rows, and what is refused: other tokens, a short context, another server."""

from contextlib import asynccontextmanager

import pytest
import torch
from fastapi import FastAPI
from pydantic import SecretStr
from tokenizers import AddedToken

from fakes.keys import KEY
from fakes.running_server import running
from fakes.tiny_model import make_tiny_model
from fakes.training_rows import answer_row, row_of
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model_loader import load_model
from nat.backend.server.app import create_app
from nat.data_models.llm_usage import LLMUsage
from nat.errors import BackendError, ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.client import BackendClient
from nat.plugins.local.teacher import Teacher
from nat.wire.training import TrainingGroup, TrainingRollout


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def loaded(checkpoint):
    return load_model(checkpoint)


@asynccontextmanager
async def served(app):
    """The address of an application behind a socket."""
    async with running(app) as client:
        yield str(client.base_url).rstrip("/")


@asynccontextmanager
async def serving(loaded):
    """The address of a backend with this model."""
    worker = Worker(Engine(loaded, policy_version="tiny@0"))
    try:
        async with served(create_app(worker, api_key=KEY)) as url:
            yield url
    finally:
        worker.close()


def teacher_at(url, model="tiny", **options):
    config = OpenAIModelConfig(base_url=f"{url}/v1", api_key=SecretStr(KEY), model_name=model, max_retries=0, **options)
    return Teacher(config, llm_name="big")


def of_teacher(row):
    return [logprob for span in row.spans for logprob in span.teacher_logprobs]


async def checked(student, teacher, url=None):
    """Compare the tokens of two models; a `url` takes the place of the teacher's server."""
    async with serving(student) as own, BackendClient(own, KEY) as client:
        size = (await client.health()).vocabulary
        if url is not None:
            async with teacher_at(url) as asked:
                await asked.check(client.detokenize, size)
            return
        async with serving(teacher) as other, teacher_at(other) as asked:
            await asked.check(client.detokenize, size)


def group_of(*rows):
    return TrainingGroup(id="g", rollouts=[TrainingRollout(reward=0, rows=[row]) for row in rows])


async def test_each_sampled_token_gets_the_teachers_log_probability(loaded):
    """They equal a forward pass of the teacher, tokens that nobody sampled have none, and a row is one request."""
    rows = [row_of([5, 6, 7, 8, 9], [None, None, -1.0, None, -1.0]), row_of([1, 2, 3], [None, -1.0, -1.0])]
    async with serving(loaded) as url, teacher_at(url) as teacher:
        scored = await teacher.scored([group_of(*rows)])
    for row, rollout in zip(rows, scored.groups[0].rollouts, strict=True):
        with torch.no_grad():
            logprobs = packed_logits(loaded.model, PackedRows.of([row.token_ids])).log_softmax(-1)
        exact = [float(logprobs[at - 1, row.token_ids[at]]) for at in row.targets]
        assert of_teacher(rollout.rows[0]) == pytest.approx(exact, abs=1e-4)
    assert scored.metrics["teacher_calls"] == 2
    assert scored.metrics["teacher_tokens"] == 8
    assert scored.metrics["teacher_unscored"] == 0
    assert scored.metrics["teacher_seconds"] > 0
    assert scored.usage == {"big": LLMUsage(calls=2, prompt_tokens=8, completion_tokens=2)}


async def test_other_tokens_are_refused_with_the_first_that_differ(checkpoint, loaded):
    """The message has the ids and both texts; a special token counts as any other, and the same tokens are accepted."""
    await checked(loaded, loaded)
    other = load_model(checkpoint)
    changed = other.tokenizer.hf.backend_tokenizer.to_str().replace('"<tool_call>"', '"<call_a_tool>"')
    other.tokenizer.hf._tokenizer = type(other.tokenizer.hf.backend_tokenizer).from_str(changed)
    id_ = loaded.tokenizer.hf.convert_tokens_to_ids("<tool_call>")
    with pytest.raises(ConfigError, match=rf"llms\.big: .*another vocabulary.* {id_} is '<tool_call>' for the student"):
        await checked(loaded, other)


async def test_a_teacher_with_more_tokens_is_refused(checkpoint, loaded):
    """The student could never write them, and the teacher would expect it to."""
    other = load_model(checkpoint)
    other.tokenizer.hf.add_tokens([AddedToken("<think>")])
    with pytest.raises(ConfigError, match=r"and the teacher more, which are '<think>'"):
        await checked(loaded, other)


async def test_a_row_beyond_the_teachers_context_is_refused(checkpoint, loaded):
    """The message has both lengths. In a row that fills the context, the last token stays without a score."""
    short = load_model(checkpoint, max_seq_length=8)
    async with (
        serving(short) as url,
        serving(loaded) as own,
        BackendClient(own, KEY) as client,
        teacher_at(url) as teacher,
    ):
        await teacher.check(client.detokenize, (await client.health()).vocabulary)
        scored = await teacher.scored([group_of(answer_row(range(5), range(5, 8), [-1.0] * 3))])
        assert scored.metrics["teacher_unscored"] == 1
        with pytest.raises(ConfigError, match="its context has 8 tokens; a rollout has a row of 9"):
            await teacher.scored([group_of(answer_row(range(5), range(5, 9), [-1.0] * 4))])


async def test_a_server_without_scores_is_named(loaded):
    """A server without /detokenize, or that ignores `prompt_logprobs`, is no teacher; the hint says which is."""
    app = FastAPI()

    @app.get("/v1/models")
    def models():
        return {"data": [{"id": "tiny"}]}

    async with served(app) as url:
        with pytest.raises(
            BackendError, match=r"llms\.big: the teacher's server answered /detokenize with 404"
        ) as found:
            await checked(loaded, None, url)
    assert "prompt_logprobs" in found.value.hint

    @app.post("/v1/completions")
    def complete():
        return {"choices": [{"text": ""}]}

    async with served(app) as url, teacher_at(url) as teacher:
        with pytest.raises(BackendError, match="the answer has no prompt_logprobs for 2 tokens"):
            await teacher.scored([group_of(answer_row([1], [2], [-1.0]))])
