"""The arguments of `vllm serve`, and which options an engine takes."""

import json

import pytest
from pydantic import ValidationError
from safetensors.torch import load_file

from nat.art.options import ArtServeOptions
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.vllm import opening
from nat.backend.vllm.opening import (
    cards_of_engines,
    cores_of_engines,
    memory_arguments,
    own_cards,
    serve_arguments,
    vllm_engine,
    vllm_place,
)
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


def test_a_plan_says_where_vllm_samples():
    """On the GPUs or cores that it gets, on the learner's, or at its address."""
    assert vllm_place(["CUDA_VISIBLE_DEVICES=2,3"]) == "vLLM samples on GPU 2,3"
    assert vllm_place([""]) == "vLLM samples on the first of these"
    several = ["VLLM_CPU_OMP_THREADS_BIND=0,1", "http://a:1"]
    assert vllm_place(several) == "vLLM samples on cores 0,1 and at http://a:1"


CARDS = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("given", "count", "found"),
    [
        ({}, 1, ([{}], True)),
        ({"device": "cuda:0"}, 2, ([{CARDS: "1"}], False)),
        ({"replicas": 2}, 2, ([{CARDS: "0"}, {CARDS: "1"}], True)),
        ({"replicas": 2}, 3, ([{CARDS: "1"}, {CARDS: "2"}], False)),
        ({"replicas": 2, "tensor_parallel": 2}, 5, ([{CARDS: "1,2"}, {CARDS: "3,4"}], False)),
        ({"tensor_parallel": 2, "device": "cuda:1"}, 3, ([{CARDS: "0,2"}], False)),
    ],
)
def test_engines_take_the_gpus_that_do_not_learn(tiny_dir, given, count, found):
    """If these do not suffice, the learner's first one is shared, and its memory with it."""
    assert cards_of_engines(options(tiny_dir, **given), count, None) == found


def test_more_engines_than_devices_are_refused(tiny_dir):
    """The message has both numbers."""
    with pytest.raises(EngineNotStarted, match="replicas 2 with tensor_parallel 2 take 4 GPUs; vLLM can have 3"):
        cards_of_engines(options(tiny_dir, replicas=2, tensor_parallel=2, device="cuda:0"), 4, None)
    with pytest.raises(EngineNotStarted, match="replicas 3: this process may use 2 cores"):
        cores_of_engines(options(tiny_dir, replicas=3), [0, 1])
    with pytest.raises(EngineNotStarted, match="not split"):
        cores_of_engines(options(tiny_dir, tensor_parallel=2), [0, 1])


def test_engines_on_a_cpu_have_cores_of_their_own(tiny_dir):
    """By itself, each would take the same ones; one engine is left its own choice."""
    name = "VLLM_CPU_OMP_THREADS_BIND"
    assert cores_of_engines(options(tiny_dir), [0, 1]) == [{}]
    assert cores_of_engines(options(tiny_dir, replicas=2), [0, 1, 4, 5, 6]) == [{name: "0,1"}, {name: "4,5"}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "embedded", "replicas": 2}, "replicas: no effect with engine embedded"),
        ({"vllm_url": ["http://a:1", "http://a:1/"]}, "a server is there twice"),
        ({"vllm_url": ["http://a:1", "http://a:1/v1"]}, "a server is there twice"),
        ({"vllm_url": "http://a:1, b:2"}, "expected http://HOST:PORT or https://HOST/PATH, got 'b:2'"),
        ({"vllm_url": "http://a:1 http://b:1"}, "got 'http://a:1 http://b:1'"),
        ({"vllm_url": "http://a\tb:1"}, "got 'http:..a.tb:1'"),
        ({"vllm_url": "http://a:port"}, "got 'http://a:port'"),
        ({"vllm_url": "http://a:999999"}, "got 'http://a:999999'"),
        ({"vllm_url": "http://[::1"}, "got 'http:...::1'"),
        ({"vllm_url": "http://a/?key=1"}, "got 'http://a/.key=1'"),
        ({"vllm_url": "http://a:1", "replicas": 2, "tensor_parallel": 2}, "replicas, tensor_parallel: no effect with"),
        ({"replicas": 2, "vllm_sleep": "training"}, "several vLLM servers do not sleep"),
        ({"replicas": 0}, "greater than or equal to 1"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(tiny_dir, given, message):
    """An option without effect is an error."""
    with pytest.raises(ValidationError, match=message):
        options(tiny_dir, **given)


def test_a_split_is_asked_for_by_its_own_option(tiny_dir, loaded):
    """The arguments of one engine do not say which GPUs the others have."""
    assert "--tensor-parallel-size 2" in " ".join(serve_arguments(options(tiny_dir, tensor_parallel=2), loaded))
    both = options(tiny_dir, replicas=2, vllm_args="--tensor_parallel_size=2")
    with pytest.raises(EngineNotStarted, match="tensor_parallel says"), vllm_engine(both, loaded, version="m@0"):
        pass


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
