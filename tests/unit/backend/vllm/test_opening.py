"""The arguments of `vllm serve`, and which options an engine takes."""

import re

import pytest
from pydantic import ValidationError

from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.vllm import opening
from nat.backend.vllm.opening import memory_arguments, own_cards, serve_arguments, vllm_engine
from nat.errors import EngineFailed
from nat.wire.serving import ServeOptions


def options(tiny_dir, **given):
    return ServeOptions(model=tiny_dir(), **{"engine": "vllm", **given})


def test_our_options_become_vllms(tiny_dir, tmp_path):
    """Name, precision, context and rank are passed; the rank is rounded up to one that vLLM takes."""
    given = {"served_model_name": "me", "max_num_seqs": 7, "lora_rank": 9, "tensor_parallel": 2}
    loaded = load_model(tiny_dir(), device="cpu", lora=LoraSettings(9), max_seq_length=64)
    arguments = " ".join(serve_arguments(options(tiny_dir, output_dir=tmp_path, **given), loaded))
    assert "--served-model-name me --dtype float32 --max-model-len 64 --max-num-seqs 7" in arguments
    assert "--logprobs-mode processed_logprobs" in arguments
    assert "--tensor-parallel-size 2" in arguments
    assert "--enable-lora --max-loras 1 --max-cpu-loras 2 --max-lora-rank 16" in arguments
    with pytest.raises(EngineFailed, match="no LoRA rank of 513"):
        serve_arguments(options(tiny_dir, lora_rank=513, output_dir=tmp_path), loaded)


def test_models_and_arguments_that_vllm_cannot_have_are_refused(tiny_dir, tmp_path, loaded):
    """An adapter, a key that our requests would not have, and tied weights whose updates reach half of them."""
    (tmp_path / "adapter_config.json").write_text("{}")
    for given, text in [
        ({"model": tmp_path}, "nat runs export"),
        ({"vllm_args": "--api-key=k"}, "only this user can open"),
        ({"output_dir": tmp_path / "out"}, "tied to the embeddings"),
    ]:
        chosen = ServeOptions(**{"model": tiny_dir(), "engine": "vllm", **given})
        with (
            pytest.raises(EngineFailed, match=re.escape(text)),
            vllm_engine(chosen, loaded, version="m@0"),
        ):
            pass


def test_vllm_gets_the_share_that_the_learner_leaves(tiny_dir, loaded, monkeypatch):
    """It comes before the arguments of the user, of which the last one counts; too little for weights is refused."""
    monkeypatch.setattr(opening, "share_for_vllm", lambda *_: 0.37)
    monkeypatch.setattr(opening, "total_bytes", lambda _: 10**9)
    assert memory_arguments(options(tiny_dir), loaded) == ["--gpu-memory-utilization", "0.37"]
    monkeypatch.setattr(opening, "share_for_vllm", lambda *_: 0.0)
    with pytest.raises(EngineFailed, match=r"of the GPU's 1\.0 GB are left for vLLM"):
        memory_arguments(options(tiny_dir), loaded)
    own = options(tiny_dir, vllm_args="--gpu-memory-utilization=0.3")
    assert memory_arguments(own, loaded) == ["--gpu-memory-utilization", "0.00"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "embedded", "vllm_args": "--x"}, "vllm_args: no effect with engine embedded"),
        ({"vllm_url": "a:8000"}, "vllm_url"),
    ],
)
def test_options_without_effect_are_refused(tiny_dir, given, message):
    """An option that the chosen engine does not use is an error, and so is what is no address."""
    with pytest.raises(ValidationError, match=message):
        options(tiny_dir, **given)


@pytest.mark.parametrize(
    ("device", "count", "visible", "given"),
    [
        ("auto", 2, None, {}),
        ("cuda:0", 2, None, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda:1", 2, "GPU-a,GPU-b", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
    ],
)
def test_a_gpu_with_a_number_is_the_learners_alone(device, count, visible, given):
    """VLLM gets the others that this process sees; without a number, both share the first."""
    assert own_cards(device, count, visible) == given
