"""Exported models on a real vLLM: the merged model and the adapter answer as the learner's weights do."""

from pathlib import Path

import httpx
import pytest
import torch
from conformance.engines.serving import serving

from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.export import export_checkpoint
from nat.backend.lora import LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.learner import Learner, Reference
from nat.wire.training import TrainingConfig

pytestmark = pytest.mark.large

PROMPT = list(range(40, 70))
ANSWER = 8


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head size of 32, the smallest that vLLM supports."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden=128)


def trained(base: Path, lora: LoraSettings | None, folder: Path) -> tuple[LoadedModel, Path]:
    """The weights after an update, and their checkpoint."""
    loaded = load_model(base, device="cpu", lora=lora)
    learner = Learner(loaded, Reference(loaded, lambda: load_model(base, device="cpu").model))
    learner.update(random_groups(loaded), resolve(TrainingConfig(learning_rate=1e-2, max_logprob_difference=100)))
    return loaded, Checkpoints(folder, keep_last=1).save(loaded, learner, [])


def greedy(loaded: LoadedModel) -> list[int]:
    """The most probable answer of the weights, whether or not the model would end it earlier."""
    tokens = list(PROMPT)
    with torch.no_grad():
        for _ in range(ANSWER):
            tokens.append(int(packed_logits(loaded.model, PackedRows.of([tokens]))[-1].argmax()))
    return tokens[len(PROMPT) :]


def answer(url: str, model: str) -> list[int]:
    """The token ids of a greedy answer."""
    options = {"max_tokens": ANSWER, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
    body = {"model": model, "prompt": PROMPT, **options}
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=300).raise_for_status()
    return reply.json()["choices"][0]["token_ids"]


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=8)], ids=["all weights", "merged adapter"])
def test_vllm_serves_an_exported_model(base: Path, tmp_path: Path, lora: LoraSettings | None) -> None:
    """`--format hf`: greedy answers are those of the trained weights, and not those of the base model."""
    loaded, checkpoint = trained(base, lora, tmp_path / "checkpoints")
    export_checkpoint(checkpoint, tmp_path / "exported")
    with serving(tmp_path / "exported") as url:
        assert answer(url, str(tmp_path / "exported")) == greedy(loaded)
    assert greedy(loaded) != greedy(load_model(base, device="cpu"))


def test_vllm_serves_an_exported_adapter(base: Path, tmp_path: Path) -> None:
    """`--format peft`: the adapter is served under its own name beside the base model."""
    loaded, checkpoint = trained(base, LoraSettings(rank=8), tmp_path / "checkpoints")
    export_checkpoint(checkpoint, tmp_path / "adapter", "peft")
    with serving(
        base, "--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"mine={tmp_path / 'adapter'}"
    ) as url:
        assert answer(url, "mine") == greedy(loaded)
        assert answer(url, str(base)) == greedy(load_model(base, device="cpu"))
