"""What must hold on a GPU as on a CPU; the tests marked `cuda` are skipped where there is none.

Apple's GPU is a fake here: the code has never run on a real one.
"""

from functools import partial

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fakes.fake_device import FakeDevice
from fakes.training_batches import random_groups, sampled_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, masked_attention, packed_logits
from nat.backend.devices import chosen_device
from nat.backend.export import export_model
from nat.backend.lora import LoraSettings
from nat.backend.memory import available_bytes, free_bytes, total_bytes
from nat.backend.model_loader import fastest_dtype, load_model
from nat.backend.model_path import lean
from nat.backend.training import metrics
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import ModelNotSupported
from nat.wire.training import TrainingConfig

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request):
    return request.param


@pytest.mark.parametrize(
    "options",
    [{}, {"lora": LoraSettings(4)}, {"lora": LoraSettings(4), "load_in_4bit": True}],
    ids=["all weights", "lora", "lora on four bits"],
)
def test_sampler_and_learner_agree_in_bfloat16(tiny_dir, make_learner, device, options):
    """An update of sampled answers passes the alarms on both sides of it: before, and with the new weights."""
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="bfloat16", **options)
    before = {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}
    metrics = make_learner(loaded).update(sampled_groups(loaded), resolve(TrainingConfig(learning_rate=1e-3)))
    assert metrics["logprob_diff_mean"] < 0.05
    assert metrics["served_diff_mean"] < 0.05
    assert any((p != before[name]).any() for name, p in loaded.trainable_parameters().items())


def test_packed_rows_give_the_logits_of_padded_ones(tiny_dir, device):
    """The packed forward pass equals transformers' own pass over a padded batch."""
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="float32")
    rows = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10]]
    ids = torch.tensor([row + [0] * (5 - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (5 - len(row)) for row in rows], device=device)
    with torch.no_grad():
        packed = packed_logits(loaded.model, PackedRows.of(rows, device=device))
        loaded.model.set_attn_implementation("eager")
        padded = loaded.model(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(packed, padded[mask.bool()], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "option",
    [{"micro_batch_tokens": 1}, {"gradient_checkpointing": True}, {"optimizer_offload": True}],
    ids=["rows one by one", "checkpointing", "offload"],
)
def test_memory_options_do_not_change_an_update(tiny_dir, make_learner, device, option):
    """Small batches and activations that are computed again give the weights of the plain update."""
    groups = random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"))
    trained = []
    for options in ({"micro_batch_tokens": 100_000, "gradient_checkpointing": False}, option):
        loaded = load_model(tiny_dir("qwen2"), device=device, dtype="float32")
        make_learner(loaded).update(groups, resolve(TrainingConfig(learning_rate=1e-3, **options)))
        trained.append(loaded.trainable_parameters())
    for name, parameter in trained[0].items():
        torch.testing.assert_close(parameter, trained[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("lora", [None, LoraSettings(4)])
def test_an_exported_model_computes_what_was_served(tiny_dir, tmp_path, make_learner, device, lora):
    """The exported folder, loaded on the CPU, gives the trained logits; an adapter is merged."""
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="float32", lora=lora)
    make_learner(loaded).update(sampled_groups(loaded), resolve(TrainingConfig(learning_rate=1e-2)))
    export_model(loaded, tmp_path / "model")
    again = load_model(tmp_path / "model", device="cpu")
    rows = [[1, 2, 3, 4, 5], [6, 7]]
    with torch.no_grad():
        served = packed_logits(loaded.model, PackedRows.of(rows, device=device)).cpu()
        torch.testing.assert_close(packed_logits(again.model, PackedRows.of(rows)), served, atol=1e-4, rtol=1e-4)


def test_a_reference_is_loaded_where_gradients_are_off(tiny_dir, device):
    """The learner scores with it, and its kernels are compared with their gradients all the same."""
    load = partial(load_model, tiny_dir("qwen2"), device=device, dtype="bfloat16")
    loaded = load()
    learner = Learner(loaded, Reference(loaded, lambda: load().model))
    assert "reference_kl" in learner.update(sampled_groups(loaded), resolve(TrainingConfig(beta=0.1)))


def test_the_sampler_has_layers_of_its_own(tiny_dir, device):
    """They start half of the kernels, and agree with transformers' layers in bfloat16."""
    model = load_model(tiny_dir("qwen3"), device=device, dtype="bfloat16").model
    assert len(lean(model)) == len(model.base_model.layers)


@pytest.mark.parametrize("device", [CUDA])
def test_groups_with_a_mask_have_a_fast_kernel(device):
    """Without the math kernel, which computes in float32 and keeps all scores, torch would raise."""
    query, key = (torch.randn(2, heads, n, 64, device=device, dtype=torch.bfloat16) for heads, n in ((8, 33), (2, 128)))
    mask = torch.ones(2, 1, 33, 128, dtype=torch.bool, device=device).tril(90)
    expected = masked_attention(query.float().cpu(), key.float().cpu(), key.float().cpu(), mask.cpu(), None)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
        found = masked_attention(query, key, key, mask, None)
    torch.testing.assert_close(found.float().cpu(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("device", [CUDA])
def test_an_update_is_undone_from_pinned_memory(tiny_dir, make_learner, monkeypatch, device):
    """Its copies went to the host without waiting; weights and moments are as before, bit by bit."""
    room = {"cuda": 0, "cpu": 2**40}
    monkeypatch.setattr("nat.backend.training.optimizer.free_bytes", lambda place: room[place.type])
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="bfloat16")
    learner = make_learner(loaded)
    groups, settings = sampled_groups(loaded), resolve(TrainingConfig(learning_rate=1e-3))
    learner.update(groups, settings)
    before = {name: tensor.cpu().clone() for name, tensor in learner.optimizer.state().items()}
    pinned = []

    def stop(_):
        pinned.append(learner.optimizer._pinned)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.update(sampled_groups(loaded), settings, on_step=stop)
    assert pinned == [True]
    for name, tensor in learner.optimizer.state().items():
        assert torch.equal(tensor.cpu(), before[name]), name


@pytest.fixture
def mac(monkeypatch):
    """A Mac with 8 GB for its GPU, of which 1 GB is taken."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: version <= (14, 0))
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * 10**9)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 10**9)
    with FakeDevice("mps") as fake:
        yield fake


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {"beta": 0.1}),
        ({"lora": LoraSettings(4)}, {"algorithm": "dpo"}),
        ({}, {"algorithm": "kto"}),
        ({"lora": LoraSettings(4), "load_in_4bit": True}, {"gradient_checkpointing": True, "kl_penalty_coef": 1}),
    ],
    ids=["grpo", "dpo with lora", "kto", "qlora with checkpointing"],
)
def test_apples_gpu_computes_no_float64(tiny_dir, mac, options, settings):
    """Sampling and an update put nothing in float64 there, mix no places, and give what they give on the CPU."""
    tokens, metrics_of = [], []
    for device in ("cpu", "mps"):
        load = partial(load_model, tiny_dir("qwen3"), device=device, dtype="float32")
        loaded = load(**options)
        assert {mac.has(weight) for weight in loaded.model.parameters()} == {device == "mps"}
        groups = sampled_groups(loaded)
        tokens.append([row.token_ids for group in groups for rollout in group.rollouts for row in rollout.rows])
        learner = Learner(loaded, Reference(loaded, lambda load=load: load().model))
        metrics_of.append(learner.update(groups, resolve(TrainingConfig(learning_rate=1e-3, **settings))))
    assert tokens[0] == tokens[1]
    for name in metrics_of[0].keys() - {"seconds", "tokens_per_second"}:
        assert metrics_of[1][name] == pytest.approx(metrics_of[0][name], rel=1e-3, abs=1e-4), name


def test_float64_on_apples_gpu_would_be_found(tiny_dir, make_learner, mac, monkeypatch):
    """The fake refuses what the real one refuses."""
    loaded = load_model(tiny_dir("qwen2"), device="mps", dtype="float32")
    groups = sampled_groups(loaded)
    monkeypatch.setattr(metrics, "widest_dtype", lambda _: torch.float64)
    with pytest.raises(TypeError, match="float64 on mps"):
        make_learner(loaded).update(groups, resolve(TrainingConfig()))


def test_auto_takes_apples_gpu_where_there_is_no_cuda(mac, monkeypatch):
    """In bfloat16 from macOS 14 on; its memory is what Metal recommends."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device = chosen_device("auto")
    assert device.type == "mps"
    assert fastest_dtype(device, 1) == torch.bfloat16
    assert [of(device) for of in (total_bytes, free_bytes, available_bytes)] == [8 * 10**9, 7 * 10**9, 8 * 10**9]
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_: False)
    assert fastest_dtype(device, 10**9) == torch.float32


def test_bfloat16_that_apples_gpu_lacks_is_refused(tiny_dir, mac, monkeypatch):
    """Before the weights are read."""
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_: False)
    with pytest.raises(ModelNotSupported, match="dtype bfloat16: mps has none before macOS 14"):
        load_model(tiny_dir("qwen2"), device="mps", dtype="bfloat16")


@pytest.mark.parametrize("wrong", [partial(torch.mul, other=1.1), partial(torch.mul, other=torch.nan)])
def test_attention_that_apples_gpu_computes_wrongly_is_refused(tiny_dir, mac, monkeypatch, wrong):
    """Without gradients it may be right: what the learner computes is compared with the CPU's, too."""
    real = torch.nn.functional.scaled_dot_product_attention

    def attention(query, *inputs, **named):
        out = real(query, *inputs, **named)
        return wrong(out) if mac.has(query) and torch.is_grad_enabled() else out

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    with pytest.raises(ModelNotSupported, match=r"attention does not work on mps .* it differs by"):
        load_model(tiny_dir("qwen2"), device="mps", dtype="float32")


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("cuda:2", 2, "device cuda:2: torch sees 2 CUDA devices here, from cuda:0 to cuda:1"),
        ("mps", 0, "finds no GPU of Apple's here"),
    ],
)
def test_a_device_that_is_not_here_is_named(monkeypatch, name, count, said):
    """With those that there are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(ModelNotSupported, match=said):
        chosen_device(name)
