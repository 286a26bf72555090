"""The memory of serving and training, beside what was measured and what others have published."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nat.sizing.memory import Setup, bytes_text, fitting_text, memory_of, ways_of
from nat.sizing.shape import ModelShape

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "docs/evidence/figures"
GB = 10**9
SHAPES = {
    "tiny": ModelShape(400_000, 18, 128, 2, 128, 128, 384, 384, tied=False),
    "stories-15m": ModelShape(15_191_712, 32000, 288, 6, 288, 288, 768, 768),
    "smollm2-135m": ModelShape(134_515_008, 49152, 576, 30, 576, 192, 1536, 1536),
    "0.5B": ModelShape(494_032_768, 151936, 896, 24, 896, 128, 4864, 4864),
    "1.5B": ModelShape(1_543_714_304, 151936, 1536, 28, 1536, 256, 8960, 8960),
    "7B": ModelShape(7_615_616_512, 152064, 3584, 28, 3584, 512, 18944, 18944, tied=False),
    "Qwen3-8B": ModelShape(8_190_735_360, 151936, 4096, 36, 4096, 1024, 12288, 12288, tied=False),
}
SHAPES["qwen2.5-0.5b"] = SHAPES["0.5B"]
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}
CPU = re.compile(r"(\S+), (\w+), (all weights|LoRA)[^:]*: (\d+) x \d+; \d+ x (\d+)")


def on_cpu() -> list[tuple[str, ModelShape, Setup, float]]:
    """The cases that `nat` still has, with the measured bytes."""
    rows = csv.DictReader((FIGURES / "memory.csv").read_text().splitlines())
    found = [(CPU.fullmatch(name), name, float(peak)) for name, _, peak, *_ in (row.values() for row in rows)]
    return [
        (name, SHAPES[match[1]], _setup(match, name), peak * 2**20)
        for match, name, peak in found
        if match and "bits" not in name
    ]


def _setup(match: re.Match[str], name: str) -> Setup:
    rank = None if match[3] == "all weights" else 16
    long, again = int(match[5]), "checkpointing" in name
    return Setup("cpu", match[2], rank, chats=int(match[4]), row_tokens=long, steps=1, gradient_checkpointing=again)


def on_gpu() -> list[tuple[str, ModelShape, Setup, float]]:
    rows = csv.DictReader((FIGURES / "gpu.csv").read_text().splitlines())
    found = []
    for row in rows:
        name = row["shape, mode"]
        rank = None if "all weights" in name else 16
        tokens = 2048 if name.startswith("Qwen3") else 4096
        setup = Setup("cuda", "bfloat16", rank, load_in_4bit="QLoRA" in name, chats=1, row_tokens=tokens)
        found.append((name, SHAPES[name.partition(",")[0]], setup, float(row["peak, GB"]) * GB))
    return found


@pytest.mark.parametrize(("name", "shape", "setup", "peak"), [*on_cpu(), *on_gpu()])
def test_predictions_are_within_a_fifth_of_what_was_measured(name, shape, setup, peak):
    """On CPUs up to 0.5 billion weights, on one GPU up to 8."""
    assert memory_of(shape, setup, free=139 * GB).total == pytest.approx(peak, rel=0.2), name


@pytest.mark.parametrize(("rank", "least", "most"), [(None, 165, 169), (16, 18, 24)])
def test_eight_billion_weights_take_what_others_have_published(rank, least, most):
    """8B in bfloat16 with AdamW in fp32, as users of TRL and verl report for one card, without copies for undoing."""
    setup = Setup("cuda", "bfloat16", rank, chats=1, row_tokens=1024, gradient_checkpointing=True)
    parts = memory_of(SHAPES["Qwen3-8B"], setup).parts
    undone = sum(parts.values()) - parts.get("copies to undo an update", 0)
    assert 0.8 * least * GB <= undone <= 1.2 * most * GB


def test_a_token_goes_through_few_experts_but_all_are_in_memory():
    """Activations are those of eight experts; adapters are on none."""
    shape = ModelShape.of_config(QWEN3_MOE, 30_500_000_000)
    assert (shape.active, shape.dense, shape.cached) == (8 * 768, 0, 2 * 512 * 48)
    assert memory_of(shape, Setup("cuda", "bfloat16", 16)).parts["weights"] > 61 * GB
    assert shape.adapter_weights(16) == 16 * 48 * (2 * (2048 + 4096) + 2 * (2048 + 512) + 3 * 2048)


@pytest.mark.parametrize("config", [{}, {**QWEN3_MOE, "hidden_size": 0}, {**QWEN3_MOE, "vocab_size": None}])
def test_a_configuration_without_its_sizes_is_an_error(config):
    """Nothing is guessed."""
    with pytest.raises((KeyError, ValueError)):
        ModelShape.of_config(config, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bfloat16"},
        {"lora_rank": 8},
        {"embedded": False},
        {"trains": False},
        {"chats": 16},
        {"row_tokens": 512},
        {"steps": 1},
        {"micro_batch_tokens": 512, "row_tokens": 512},
        {"gradient_checkpointing": True},
        {"has_reference": True},
    ],
    ids=str,
)
def test_each_setting_counts(change):
    """What saves or takes memory changes the prediction."""
    setup = Setup("cpu", "float32", gradient_checkpointing=False)
    assert memory_of(SHAPES["0.5B"], replace(setup, **change)).total != memory_of(SHAPES["0.5B"], setup).total


def test_activations_are_computed_again_where_they_do_not_fit():
    """`auto` keeps them as long as there is room."""
    setup = Setup("cuda", "bfloat16", 16)
    kept, again = (memory_of(SHAPES["7B"], replace(setup, gradient_checkpointing=each)) for each in (False, True))
    assert memory_of(SHAPES["7B"], setup, free=kept.total + GB).parts["activations"] == kept.parts["activations"]
    assert memory_of(SHAPES["7B"], setup, free=24 * GB).parts["activations"] == again.parts["activations"]


def test_a_verdict_says_by_how_much():
    """And the ways that fit are named."""
    ways = ways_of(SHAPES["7B"], Setup("cuda", "bfloat16"), free=24 * GB)
    assert [way.title for way in ways[:2]] == ["all weights, bfloat16", "all weights, float32"]
    assert ways[0].verdict(24 * GB).startswith("does not fit, ")
    assert ways[0].verdict(900 * GB).endswith(" to spare")
    assert fitting_text(ways, 24 * GB).startswith("these fit: LoRA, rank 16, ")
    assert "max_seq_length" in fitting_text(ways, GB)


@pytest.mark.parametrize(("count", "text"), [(900, "1 kB"), (2_500_000, "2 MB"), (1_200_000_000, "1.2 GB")])
def test_bytes_have_a_unit(count, text):
    """No more digits than the prediction has."""
    assert bytes_text(count) == text
