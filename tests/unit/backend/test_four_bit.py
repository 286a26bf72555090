"""LoRA on a base of four bits: small, exact about what it rounded, and the same for sampler, learner and export."""

import weakref

import pytest
import torch
from peft import PeftModel
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Qwen3Config

from fakes.training_batches import random_groups, sampled_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.export import export_checkpoint, export_model, write_adapter
from nat.backend.four_bit import FourBitLinear, decode, is_quantized, quantize
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.checkpoints import Checkpoints, restore
from nat.errors import BackendError, ModelNotSupported
from nat.sizing.shape import ModelShape
from nat.wire.training import TrainingConfig

ROWS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]]
LORA = LoraSettings(4)
CONFIG = TrainingConfig(learning_rate=1e-2)


@pytest.fixture
def quantized(tiny_dir):
    return load_model(tiny_dir("qwen2"), device="cpu", dtype="float32", lora=LORA, load_in_4bit=True)


def logits(model):
    return packed_logits(model, PackedRows.of(ROWS))


def test_each_weight_becomes_the_nearest_level_of_its_block():
    """The levels are those of NF4; a block's largest weight and its zeros are exact."""
    torch.manual_seed(0)
    source = torch.nn.Linear(96, 33)
    source.weight.data[0, :3] = torch.tensor([0.0, 8.0, -8.0])
    layer = FourBitLinear(source)
    weight = source.weight.detach().bfloat16().float().flatten()
    decoded = layer.decoded(torch.float32).flatten()
    levels_L = layer.pairs.view(torch.float32)[1:32:2]
    for number, block in enumerate(weight.split(64)):
        nearest = (block.unsqueeze(1) - block.abs().max() * levels_L).abs().min(1).values
        found = (block - decoded[number * 64 :][: len(block)]).abs()
        torch.testing.assert_close(found, nearest, atol=1e-6, rtol=0)
    assert decoded[:3].tolist() == [0.0, 8.0, -8.0]


def test_a_weight_takes_half_a_byte_and_its_part_of_a_scale(tiny_dir, caplog):
    """All layers but the output layer are quantized; with the scale of 64 weights that is 0.5625 bytes each."""
    with caplog.at_level("INFO"):
        quantized = load_model(tiny_dir("qwen2"), device="cpu", lora=LORA, load_in_4bit=True)
    layers = {name: m for name, m in quantized.model.named_modules() if isinstance(m, FourBitLinear)}
    assert len(layers) == 2 * 7
    weights = sum(layer.in_features * layer.out_features for layer in layers.values())
    held = sum(layer.weight.nbytes + layer.scales.nbytes for layer in layers.values())
    assert held / weights == 0.5625
    assert f"load_in_4bit: {weights} weights have four bits" in caplog.text
    plain = load_model(quantized.path, device="cpu", lora=LORA)
    assert quantized.num_parameters == plain.num_parameters


class LiveBytes(TorchDispatchMode):
    """The most bytes of a device's tensors that lived at the same time in the block."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.now, self.most, self.known = device, 0, 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device == self.device:
                self.count(tensor.untyped_storage())
        return result

    def count(self, storage):
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.freed, key, size)

    def freed(self, key, size):
        self.known.discard(key)
        self.now -= size


def test_unquantized_weights_never_lie_on_the_device_together():
    """They go there layer by layer: beside codes and scales, the device holds what the plan counts for one layer."""
    shape = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 24, "num_attention_heads": 4}
    config = Qwen3Config(vocab_size=300, head_dim=16, num_key_value_heads=2, **shape)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    weights = ModelShape.of_config(config.to_dict()).linear_weights
    with LiveBytes(torch.device("meta")) as live:
        quantize(model, torch.device("meta"))
    codes = weights * (0.5 + 4 / 64)
    tables = 24 * 7 * 256 * 8
    assert codes <= live.most <= codes + 20 * 64 * 256 + tables
    assert live.most < 2 * weights


def test_the_input_gets_the_gradient_of_the_decoded_weights():
    """Nothing is kept for the backward pass, where a plain layer keeps its decoded weights."""
    torch.manual_seed(0)
    layer = FourBitLinear(torch.nn.Linear(32, 48))
    x = torch.randn(5, 32, requires_grad=True)
    kept = []
    with saved_tensors_hooks(kept.append, lambda saved: saved):
        out = layer(x)
    assert not kept
    upstream = torch.randn(5, 48)
    (found,) = torch.autograd.grad(out, x, upstream)
    expected = torch.nn.functional.linear(x, layer.decoded(torch.float32), layer.bias)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, x, upstream)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_learns_on_four_bits(tiny_dir, make_learner, dtype):
    """Sampler and learner agree before and after the update, and the base stays as it is."""
    loaded = load_model(tiny_dir("qwen2"), device="cpu", dtype=dtype, lora=LORA, load_in_4bit=True)
    base = {name: p.clone() for name, p in loaded.model.named_parameters() if "lora_" not in name}
    before = logits(loaded.model).detach()
    metrics = make_learner(loaded).update(sampled_groups(loaded), resolve(CONFIG))
    tolerance = 1e-5 if dtype == "float32" else CONFIG.max_logprob_difference
    assert metrics["logprob_diff_mean"] < tolerance
    assert metrics["served_diff_mean"] < tolerance
    assert not torch.allclose(logits(loaded.model), before, atol=1e-3)
    assert all(torch.equal(p, base[name]) for name, p in loaded.model.named_parameters() if "lora_" not in name)


def test_codes_do_not_depend_on_the_precision_of_the_run(tiny_dir):
    """A run in bfloat16 and an export, which loads float32, round to the same base."""
    codes = []
    for dtype in ("float32", "bfloat16"):
        model = load_model(tiny_dir("llama"), device="cpu", dtype=dtype, load_in_4bit=True).model
        codes.append([m.weight for m in model.modules() if isinstance(m, FourBitLinear)])
    assert all(torch.equal(one, other) for one, other in zip(*codes, strict=True))


@pytest.mark.parametrize("kind", ["qwen3", "mistral", "gemma3"])
def test_other_architectures_load_in_four_bits(tiny_dir, kind):
    """Packed rows give the logits of rows alone, which loading checks; rounding changes them."""
    exact = logits(load_model(tiny_dir(kind), device="cpu").model)
    rounded = load_model(tiny_dir(kind), device="cpu", load_in_4bit=True)
    assert is_quantized(rounded.model)
    assert not torch.allclose(logits(rounded.model), exact, atol=1e-3)


@torch.no_grad()
def test_exports_compute_what_was_served(quantized, tmp_path, make_learner):
    """Both the server's export and that of a checkpoint merge the adapter into the rounded base."""
    learner = make_learner(quantized)
    with torch.enable_grad():
        learner.update(random_groups(quantized), resolve(CONFIG))
    served = logits(quantized.model)
    export_model(quantized, tmp_path / "model")
    checkpoint = Checkpoints(tmp_path / "checkpoints", keep_last=1).save(quantized, learner, [])
    export_checkpoint(checkpoint, tmp_path / "exported")
    for folder in (tmp_path / "model", tmp_path / "exported", checkpoint):
        again = load_model(folder, device="cpu")
        assert not is_quantized(again.model)
        torch.testing.assert_close(logits(again.model), served, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits(quantized.model), served, atol=0, rtol=0)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft uses a deprecated name of transformers
@torch.no_grad()
def test_the_adapter_is_an_ordinary_one(quantized, tmp_path, make_learner):
    """Peft loads it, and on the rounded base it computes what was served."""
    with torch.enable_grad():
        make_learner(quantized).update(random_groups(quantized), resolve(CONFIG))
    write_adapter(quantized, tmp_path)
    base = AutoModelForCausalLM.from_pretrained(quantized.path, dtype=torch.float32)
    quantize(base, base.device)
    decode(base)
    found = PeftModel.from_pretrained(base, str(tmp_path))(torch.tensor([ROWS[0]])).logits[0]
    torch.testing.assert_close(found, logits(quantized.model)[: len(ROWS[0])], atol=1e-4, rtol=1e-4)


def test_a_run_resumes_on_the_base_that_its_adapter_was_trained_on(quantized, tmp_path, make_learner):
    """Four bits resume; another base is refused, with the option to change."""
    learner = make_learner(quantized)
    learner.update(random_groups(quantized), resolve(CONFIG))
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    checkpoints.save(quantized, learner, [])
    found = checkpoints.open()
    again = load_model(quantized.path, device="cpu", lora=LORA, load_in_4bit=True)
    restore(found, again, make_learner(again))
    assert torch.equal(logits(again.model), logits(quantized.model))
    other = load_model(quantized.path, device="cpu", lora=LORA)
    with pytest.raises(BackendError, match="made with load_in_4bit"):
        restore(found, other, make_learner(other))


def test_a_model_without_linear_layers_is_refused(tiny_dir):
    """GPT-2 has layers of a kind of its own."""
    with pytest.raises(ModelNotSupported, match=r"GPT2LMHeadModel has no torch\.nn\.Linear"):
        load_model(tiny_dir("gpt2"), device="cpu", lora=LORA, load_in_4bit=True)
