"""The arguments of `vllm serve`, and which options an engine takes."""

import json

import pytest
from pydantic import ValidationError
from safetensors.torch import load_file

from nat.art.options import ArtServeOptions
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.vllm import opening
from nat.backend.vllm.opening import memory_arguments, own_cards, serve_arguments, vllm_engine
from nat.backend.vllm.weights import must_untie, write_weights
from nat.errors import EngineNotStarted
from nat.wire.serving import ServeOptions


def options(tiny_dir, **given):
    return ServeOptions(model=tiny_dir(), **{"engine": "vllm", **given})


def test_our_options_become_vllms(tiny_dir, tmp_path):
    """Name, precision, context and rank are passed; the rank is rounded up to one that vLLM takes."""
    given = options(tiny_dir, served_model_name="me", max_num_seqs=7, lora_rank=9, output_dir=tmp_path)
    loaded = load_model(tiny_dir(), device="cpu", lora=LoraSettings(9), max_seq_length=64)
    arguments = " ".join(serve_arguments(given, loaded))
    assert "--served-model-name me --dtype float32 --max-model-len 64 --max-num-seqs 7" in arguments
    assert "--logprobs-mode processed_logprobs" in arguments
    assert "--enable-lora --max-loras 1 --max-cpu-loras 2 --max-lora-rank 16" in arguments


def test_a_rank_beyond_vllms_is_refused(tiny_dir, tmp_path, loaded):
    """The largest possible rank is named."""
    given = options(tiny_dir, lora_rank=513, output_dir=tmp_path)
    with pytest.raises(EngineNotStarted, match="no LoRA rank of 513"):
        serve_arguments(given, load_model(tiny_dir(), device="cpu", lora=LoraSettings(4)))


def test_an_adapter_cannot_start_vllm(tmp_path, loaded):
    """The remedy is an export."""
    (tmp_path / "adapter_config.json").write_text("{}")
    given = ServeOptions(model=tmp_path, engine="vllm")
    with pytest.raises(EngineNotStarted, match="nat runs export"), vllm_engine(given, loaded, version="m@0"):
        pass


def test_a_vllm_of_ours_needs_no_key(tiny_dir, loaded):
    """Our requests would be refused, too."""
    given = options(tiny_dir, vllm_args="--api-key=k")
    with pytest.raises(EngineNotStarted, match="only this user can open"), vllm_engine(given, loaded, version="m@0"):
        pass


def test_vllm_gets_the_share_that_the_learner_leaves(tiny_dir, loaded, monkeypatch):
    """It comes before the arguments of the user, of which the last one counts; too little for weights is refused."""
    monkeypatch.setattr(opening, "share_for_vllm", lambda *_: 0.37)
    monkeypatch.setattr(opening, "total_bytes", lambda _: 10**9)
    assert memory_arguments(options(tiny_dir), loaded) == ["--gpu-memory-utilization", "0.37"]
    monkeypatch.setattr(opening, "share_for_vllm", lambda *_: 0.0)
    with pytest.raises(EngineNotStarted, match=r"0 MB of the GPU's 1\.0 GB are left for vLLM"):
        memory_arguments(options(tiny_dir), loaded)
    own = options(tiny_dir, vllm_args="--gpu-memory-utilization=0.3")
    assert memory_arguments(own, loaded) == ["--gpu-memory-utilization", "0.00"]


def test_on_a_cpu_no_prompt_is_prefilled_in_parts(tiny_dir, loaded):
    """VLLM 0.32 would rewind the generator of a seed, which ends it.

    Without `--max-num-batched-tokens` it takes a budget that holds the longest prompt; it refuses a smaller one.
    """
    arguments = serve_arguments(options(tiny_dir), loaded)
    assert "--no-enable-chunked-prefill" in arguments
    assert "--max-num-batched-tokens" not in arguments


@pytest.mark.parametrize("words", ["--enable-chunked-prefill", "--long_prefill_token_threshold=64"])
def test_arguments_that_split_prompts_are_refused_on_a_cpu(tiny_dir, loaded, words):
    """The run would end at the first prompt that is prefilled in parts."""
    given = options(tiny_dir, vllm_args=words)
    with pytest.raises(EngineNotStarted, match="in parts"), vllm_engine(given, loaded, version="m@0"):
        pass


@pytest.mark.parametrize(
    ("given", "idle"),
    [
        ({"engine": "embedded", "vllm_args": "--x"}, "vllm_args"),
        ({"prefix_cache_mb": 1}, "prefix_cache_mb"),
        ({"vllm_url": "http://127.0.0.1:1", "vllm_args": "--x", "max_num_seqs": 3}, "max_num_seqs, vllm_args"),
    ],
)
def test_options_of_another_engine_are_refused(tiny_dir, given, idle):
    """An option without effect is an error."""
    with pytest.raises(ValidationError, match=f"{idle}: no effect with"):
        options(tiny_dir, **given)


@pytest.mark.parametrize(
    ("device", "count", "visible", "given"),
    [
        ("auto", 2, None, {}),
        ("cuda", 1, None, {}),
        ("cuda:0", 2, None, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda:1", 3, None, {"CUDA_VISIBLE_DEVICES": "0,2"}),
        ("cuda:1", 2, "GPU-a,GPU-b", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
    ],
)
def test_a_gpu_with_a_number_is_the_learners_alone(device, count, visible, given):
    """VLLM gets the others that this process sees; without a number, both share the first."""
    assert own_cards(device, count, visible) == given


def test_a_single_gpu_cannot_be_the_learners_alone():
    """The remedy is to share it."""
    with pytest.raises(EngineNotStarted, match="no other GPU for vLLM") as raised:
        own_cards("cuda:0", 1, "3")
    assert "set device to cuda," in str(raised.value.hint)


def test_vllm_that_has_cards_of_its_own_need_not_sleep(tiny_dir):
    """An option without effect is an error."""
    with pytest.raises(ValidationError, match="vllm_sleep: no effect with device cuda:1"):
        options(tiny_dir, device="cuda:1", vllm_sleep="auto")


def test_arts_clients_are_served_by_the_embedded_engine(tiny_dir):
    """Each client has adapters of its own in one process."""
    with pytest.raises(ValidationError, match="engine vllm: inference_port"):
        ArtServeOptions(model=tiny_dir(), inference_port=0, engine="vllm")


def test_tied_weights_are_written_apart_on_a_cpu(tiny_dir, tmp_path):
    """The output layer is a tensor of its own, equal to the embeddings, and the configuration says so."""
    loaded = load_model(tiny_dir(), device="cpu")
    assert must_untie(loaded)
    write_weights(loaded, tmp_path)
    head = load_file(tmp_path / "lm_head.safetensors")["lm_head.weight"]
    assert head.equal(load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"])
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert not must_untie(load_model(tiny_dir(), device="cpu", lora=LoraSettings(4)))
