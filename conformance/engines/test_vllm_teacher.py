"""A teacher on a real vLLM: its scores are exact, and its tokens are compared with the student's."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch
from conformance.engines.serving import serving
from pydantic import SecretStr

from fakes.backend_here import backend_here
from fakes.tiny_model import make_tiny_model
from fakes.training_rows import row_of
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.model_loader import load_model
from nat.errors import ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.client import BackendClient
from nat.plugins.local.teacher import Teacher
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingGroup, TrainingRollout

pytestmark = pytest.mark.large

OTHER = Path("examples/tic_tac_toe/model")
"""A model with another tokenizer."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head size of 32, the smallest that vLLM supports."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden=128)


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with serving(model) as address:
        yield address


@pytest.fixture
async def teacher(model: Path, url: str) -> AsyncIterator[Teacher]:
    config = OpenAIModelConfig(base_url=f"{url}/v1", api_key=SecretStr("none"), model_name=str(model))
    async with Teacher(config, llm_name="teacher") as found:
        yield found


async def check(teacher: Teacher, student: Path, folder: Path) -> None:
    """Compare the teacher's tokens with those of a student in the embedded backend."""
    options = ServeOptions(model=student, output_dir=folder, device="cpu", port=0)
    async with backend_here(options) as backend, BackendClient(backend.base_url, backend.api_key) as client:
        await teacher.check(client.detokenize, (await client.health()).vocabulary)


async def test_scores_are_those_of_the_model(model: Path, teacher: Teacher, tmp_path: Path) -> None:
    """VLLM has the student's tokens; its log probability of each sampled token is that of transformers' weights."""
    await check(teacher, model, tmp_path)
    rows = [[7, 8, 9, 200, 30], list(range(40, 100)), list(range(50, 178))]
    given = [row_of(ids, [None, None] + [-1.0] * (len(ids) - 2)) for ids in rows]
    rollouts = [TrainingRollout(reward=0, rows=[row]) for row in given]
    scored = await teacher.scored([TrainingGroup(id="g", rollouts=rollouts)])
    loaded = load_model(model, device="cpu")
    for ids, rollout in zip(rows, scored.groups[0].rollouts, strict=True):
        with torch.no_grad():
            logprobs = packed_logits(loaded.model, PackedRows.of([ids])).log_softmax(-1)
        ((span,),) = (row.spans for row in rollout.rows)
        assert span.teacher_logprobs is not None
        known = {span.start + place: x for place, x in enumerate(span.teacher_logprobs) if x is not None}
        assert list(known) == list(range(2, min(len(ids), 127)))
        exact = [float(logprobs[at - 1, ids[at]]) for at in known]
        assert list(known.values()) == pytest.approx(exact, abs=1e-4)
    assert scored.metrics["teacher_unscored"] == 1


async def test_other_tokens_are_refused(teacher: Teacher, tmp_path: Path) -> None:
    """The first ids that differ are named, with both texts."""
    with pytest.raises(ConfigError, match=r"0 is '<\|end\|>' for the student and"):
        await check(teacher, OTHER, tmp_path)
