"""The backend's forecast: what it predicts and measures, and what it leaves as it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fakes.forecasts import FORECAST
from nat.backend import forecast
from nat.backend.forecast import Forecaster, check_capacity, share_for_vllm
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.errors import AlgorithmError, ModelNotSupported
from nat.sizing.forecast import ForecastRequest, fitting_text, misfit_text
from nat.sizing.memory import PredictedMemory, Setup, Workload, predict
from nat.sizing.shape import ModelShape
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingConfig

WORKLOAD = Workload(chats=2, chat_tokens=40, row_tokens=40, step_tokens=80)
QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
LONG = replace(WORKLOAD, row_tokens=512, step_tokens=4096)


@pytest.fixture
def worker(loaded):
    worker = Worker(Engine(loaded, policy_version="p@0", limits=EngineLimits()))
    yield worker
    worker.close()


@pytest.fixture
def forecaster(tiny_dir, worker, loaded, make_learner) -> Forecaster:
    return Forecaster(ServeOptions(model=tiny_dir()), worker, make_learner(loaded))


def test_the_probe_measures_and_changes_nothing(forecaster, loaded):
    """Speeds are known afterwards; weights are the same and have no gradients."""
    before = {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}
    found = forecaster.forecast(ForecastRequest(workload=WORKLOAD, num_rollouts=64, probe_seconds=1))
    assert found.speed is not None
    assert (found.speed.chats, found.speed.prompt_tokens) == (2, 23)  # 17 of 40 tokens are left for the answer
    assert min(found.speed.prompt_tokens_per_second, found.speed.step_seconds, found.speed.doubled_step_seconds) > 0
    assert (found.speed.trained_tokens, found.optimizer_steps) == (80, 2)
    assert min(found.speed.trained_tokens_per_second, found.speed.optimizer_seconds) > 0
    assert all(torch.equal(before[name], p) for name, p in loaded.trainable_parameters().items())
    assert all(p.grad is None for p in loaded.trainable_parameters().values())


def test_all_weights_and_adapters_are_compared(forecaster, loaded):
    """The configured way is the first; without `probe_seconds` nothing is measured."""
    found = forecaster.forecast(ForecastRequest(workload=WORKLOAD, num_rollouts=1))
    assert [each.title for each in found.memory] == ["all weights", "LoRA, rank 16"]
    assert found.memory[0].parts["weights"] == loaded.num_parameters * 4
    assert found.memory[0].longest_row == loaded.max_seq_length
    assert (found.place, found.places) == ("cpu", ("trains on cpu; samples on cpu",))
    assert (found.num_parameters, found.speed, found.fits) == (loaded.num_parameters, None, True)


def test_adapters_do_not_count_as_weights_of_the_base(tiny_dir, loaded):
    """With LoRA configured, all weights are compared with it: those of the base, as if there were no adapters."""
    with_adapters = load_model(tiny_dir(), device="cpu", lora=LoraSettings(rank=4))
    worker = Worker(Engine(with_adapters, policy_version="p@0", limits=EngineLimits()))
    options = ServeOptions(model=tiny_dir(), lora_rank=4)
    request = ForecastRequest(workload=WORKLOAD, num_rollouts=1)
    found = Forecaster(options, worker).forecast(request)
    in_4bit = Forecaster(options.model_copy(update={"load_in_4bit": True}), worker).forecast(request)
    worker.close()
    assert in_4bit.memory[0].title == "QLoRA, rank 4"
    assert [each.title for each in found.memory] == ["LoRA, rank 4", "all weights"]
    assert found.memory[1].parts["weights"] == loaded.num_parameters * 4


def test_settings_are_those_of_an_update(forecaster):
    """The learning rate is resolved, and an unknown algorithm is an error."""
    config = TrainingConfig(learning_rate=0.5, steps_per_batch=3, num_iterations=2)
    found = forecaster.forecast(ForecastRequest(workload=WORKLOAD, num_rollouts=1, config=config))
    assert (found.learning_rate, found.optimizer_steps) == (0.5, 6)
    with pytest.raises(AlgorithmError):
        forecaster.forecast(
            ForecastRequest(workload=WORKLOAD, num_rollouts=1, config=TrainingConfig(algorithm="unknown"))
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch_tokens": 512},
        {"gradient_checkpointing": True},
        {"beta": 0.1},
        {"kl_penalty_coef": 0.1},
    ],
    ids=str,
)
def test_what_training_takes_depends_on_its_settings(forecaster, settings):
    """Each setting that takes or saves memory changes the forecast, by which a run is permitted or refused."""
    usual = TrainingConfig(beta=0, gradient_checkpointing=False)
    requests = [
        ForecastRequest(workload=LONG, num_rollouts=1, config=config)
        for config in (usual, usual.model_copy(update=settings))
    ]
    first, second = (forecaster.forecast(request).memory[0].parts for request in requests)
    assert first != second


@pytest.mark.parametrize(
    "options", [{"kv_cache_mb": 1}, {"prefix_cache_mb": 1}, {"max_num_seqs": 1}, {"engine": "vllm"}], ids=str
)
def test_what_sampling_takes_depends_on_its_settings(tiny_dir, worker, options):
    """The limits of the caches count, and a vLLM of its own does not share this process's memory."""
    workload = Workload(chats=64, chat_tokens=512, row_tokens=64, step_tokens=64, epoch_tokens=10**6)
    request = ForecastRequest(workload=workload, num_rollouts=1)
    first, second = (
        Forecaster(ServeOptions(model=tiny_dir(), **given), worker).forecast(request).memory[0].parts
        for given in ({}, options)
    )
    assert first != second


def test_rows_are_as_long_as_the_context_allows(forecaster, loaded):
    """The dataset's longest row may be longer than what the model can read."""
    context = loaded.max_seq_length
    within, beyond = (
        forecaster.forecast(ForecastRequest(workload=replace(LONG, row_tokens=length), num_rollouts=1)).memory
        for length in (context, 10 * context)
    )
    assert within == beyond


def test_what_does_not_fit_is_not_measured(forecaster, monkeypatch):
    """The forecast says what is missing, and with which settings it would fit."""
    config = TrainingConfig(gradient_checkpointing=False)
    request = ForecastRequest(workload=LONG, num_rollouts=1, config=config)
    needed = forecaster.forecast(request).memory[0].total
    monkeypatch.setattr(forecast, "available_bytes", lambda _: needed - needed // 100)
    found = forecaster.forecast(request.model_copy(update={"probe_seconds": 1}))
    assert (found.fits, found.speed) == (False, None)
    assert found.fitting
    assert all(each.bytes < needed for each in found.fitting)
    assert misfit_text(found).startswith("training all weights takes ")
    assert fitting_text(found.fitting).startswith("these fit: ")


def test_a_model_that_the_machine_cannot_hold_is_not_loaded(tiny_dir, monkeypatch):
    """The error has the bytes and what would fit; a folder that cannot be read is left to the loader."""
    options = ServeOptions(model=tiny_dir())
    check_capacity(options)
    check_capacity(options.model_copy(update={"model": Path("missing")}))
    monkeypatch.setattr(forecast, "total_bytes", lambda _: 10**6)
    with pytest.raises(ModelNotSupported, match=r"needs \d+ MB at least .* this machine has 1 MB") as caught:
        check_capacity(options)
    assert "smaller model" in str(caught.value)


def test_the_hosts_memory_beside_a_gpu_counts():
    """What fits on the card and not on its host is refused, and the text says which of them is short."""
    needed = PredictedMemory(title="all weights", parts={"weights": 10}, total=10, host=30 * 10**9)
    enough = FORECAST.model_copy(
        update={"device": "cuda", "memory": [needed], "available": 100, "capacity": 100, "host_available": 64 * 10**9}
    )
    short = enough.model_copy(update={"host_available": 16 * 10**9})
    assert (enough.fits, short.fits, short.impossible) == (True, False, False)
    assert "takes 30.0 GB of the host's memory beside the GPU" in misfit_text(short)
    assert "16.0 GB are free" in misfit_text(short)


def test_on_a_cpu_vllm_sizes_its_own_memory(tiny_dir, loaded):
    """The share is one of a card."""
    assert share_for_vllm(ServeOptions(model=tiny_dir(), engine="vllm"), loaded) is None


def test_a_model_that_fits_is_loaded(tmp_path, monkeypatch):
    """The settings of updates are not known yet, so what they could save is not counted."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    options = ServeOptions(model=tmp_path, device="cpu", dtype="bfloat16", output_dir=tmp_path)
    monkeypatch.setattr(forecast, "total_bytes", lambda _: 250 * 10**9)
    check_capacity(options)
    monkeypatch.setattr(forecast, "total_bytes", lambda _: 80 * 10**9)
    with pytest.raises(ModelNotSupported, match=r"7\.6 billion weights, all weights"):
        check_capacity(options)


@pytest.mark.parametrize("config", ["[]", "{}", '{"hidden_size": 8, "vocab_size": null}', '{"text_config": null}'])
def test_a_configuration_that_cannot_be_read_is_left_to_the_loader(tmp_path, config):
    """The loader says what is wrong with it; a guess at the memory does not fail first."""
    (tmp_path / "config.json").write_text(config)
    check_capacity(ServeOptions(model=tmp_path))
    with pytest.raises(ModelNotSupported, match=str(tmp_path)):
        load_model(tmp_path, device="cpu")


def test_a_model_that_only_serves_needs_less(monkeypatch, tmp_path):
    """It may fill the machine to the last byte with weights and a small adapter; one that trains needs more."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    options = ServeOptions(model=tmp_path, device="cpu")
    shape = ModelShape.of_folder(options.model)
    serving = Setup(
        device="cpu",
        dtype="bfloat16",
        lora_rank=1,
        gradient_checkpointing=True,
        max_num_seqs=options.max_num_seqs,
        kv_cache_mb=options.kv_cache_mb,
        prefix_cache_mb=options.prefix_cache_mb,
    )
    needed = predict(shape, serving, Workload(chats=1, chat_tokens=64, row_tokens=64, step_tokens=64)).total
    monkeypatch.setattr(forecast, "total_bytes", lambda _: needed)
    check_capacity(options)
    with pytest.raises(ModelNotSupported, match="all weights"):
        check_capacity(options.model_copy(update={"output_dir": tmp_path}))
    monkeypatch.setattr(forecast, "total_bytes", lambda _: needed - 1)
    with pytest.raises(ModelNotSupported):
        check_capacity(options)
