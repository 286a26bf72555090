"""Predictions for usual models and cards, beside sums made here from the models' configurations, and public tables."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig, AutoModelForCausalLM

from nat.backend.decoder_parts import decoder_linears
from nat.sizing.memory import Setup, Workload, layer_bytes, longest_row, predict
from nat.sizing.remedies import remedies
from nat.sizing.shape import ModelShape

GB = 10**9
QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8}
CONFIGS = {
    "0.6B": {
        **QWEN3,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "4B": {
        **QWEN3,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": True,
    },
    "8B": {
        **QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "30B-A3B": {
        **QWEN3,
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
    },
}
BILLIONS = {"0.6B": 0.596, "4B": 4.02, "8B": 8.19, "30B-A3B": 30.5}
"""Weights by Qwen's model cards and the headers of their files."""
ROW = 1024
ONE_ROW = Workload(chats=1, chat_tokens=ROW, row_tokens=ROW, step_tokens=ROW)
BARE = Setup("cuda", "bfloat16", gradient_checkpointing=True)
WAYS = {"full": BARE, "LoRA": replace(BARE, lora_rank=16), "QLoRA": replace(BARE, lora_rank=16, load_in_4bit=True)}


def by_hand(config, way: str) -> float:
    """Bytes of an update with one row: weights, adapters, masters, gradients, moments, activations, logits, context."""
    hidden, layers, words = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    queries = config["num_attention_heads"] * 128
    keys = config["num_key_value_heads"] * 128
    experts = config.get("num_experts", 0)
    inner = config["intermediate_size"] if not experts else 8 * config["moe_intermediate_size"]
    attention = 2 * hidden * queries + 2 * hidden * keys
    plain = layers * (attention + (0 if experts else 3 * hidden * inner))
    routed = layers * experts * 3 * hidden * config.get("moe_intermediate_size", 0)
    tables = words * hidden * (1 if config["tie_word_embeddings"] else 2)
    every = plain + routed + tables
    sides = 2 * (hidden + queries) + 2 * (hidden + keys) + (0 if experts else 3 * (hidden + inner))
    trained = every if way == "full" else layers * 16 * sides
    weights = 0.5625 * plain + 2 * (routed + tables) if way == "QLoRA" else 2 * every
    state = 12 * trained + 4 * trained  # an fp32 weight, two moments, a gradient
    kept = ROW * hidden * 2 * layers
    of_a_layer = ROW * (10 * hidden + 4 * queries + 4 * keys + 4 * inner * 2 + (16 * hidden * 2 if experts else 0))
    head = 2 * tables * 2 / (1 if config["tie_word_embeddings"] else 2) if way == "full" else 0
    logits = 3 * min(2**24, ROW // 2 * words) * 4
    cache = ROW * 2 * keys * layers * 2
    return weights + state + kept + of_a_layer + head + logits + cache + 0.6e9


@pytest.mark.parametrize("model", CONFIGS)
def test_weights_are_those_of_the_model_card(model: str):
    """Experts count in full: a token goes through few of them, but all are in memory."""
    assert ModelShape.of_config(CONFIGS[model]).num_parameters / 1e9 == pytest.approx(BILLIONS[model], rel=0.005)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", CONFIGS)
def test_predictions_are_near_first_principles(model: str, way: str):
    """Within 15 % of a sum that uses nothing of the code under test."""
    predicted = predict(ModelShape.of_config(CONFIGS[model]), WAYS[way], ONE_ROW).total
    assert predicted == pytest.approx(by_hand(CONFIGS[model], way), rel=0.15)


def kept_by_a_layer(config, dtype: torch.dtype, rank: int | None) -> float:
    """Bytes per token that autograd keeps for a layer of transformers' own class, as the difference of two models."""
    tokens, kept = 256, []
    for layers in (2, 4):
        sizes = {"num_hidden_layers": layers, "attn_implementation": "sdpa"}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config, **sizes), dtype=dtype)
        if rank is not None:
            model = get_peft_model(model, LoraConfig(r=rank, target_modules=decoder_linears(model)))
        weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        seen: dict[int, torch.Tensor] = {}

        def pack(tensor: torch.Tensor, weights=weights, seen=seen) -> torch.Tensor:
            if (place := tensor.untyped_storage().data_ptr()) not in weights:
                seen[place] = tensor
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            result = model(input_ids=torch.arange(tokens).unsqueeze(0) % 64, use_cache=False).logits.sum()
        kept.append(sum(each.untyped_storage().nbytes() for each in seen.values()))
        del result
    return (kept[1] - kept[0]) / 2 / tokens


SMALL = {"vocab_size": 64, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
DENSE = {"model_type": "qwen3", "intermediate_size": 384, **SMALL}
ROUTED = {"model_type": "qwen3_moe", "moe_intermediate_size": 64, "num_experts": 16, "num_experts_per_tok": 4, **SMALL}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft uses it
@pytest.mark.parametrize("rank", [None, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", [DENSE, ROUTED], ids=["dense", "experts"])
def test_activations_are_near_those_that_autograd_keeps(config, dtype: str, rank: int | None):
    """Queries and keys that are normed, and tokens that go to experts, are counted within 15 % for Qwen3."""
    shape = ModelShape.of_config(AutoConfig.for_model(**config, num_hidden_layers=2).to_dict())
    predicted = layer_bytes(shape, Setup("cuda", dtype, rank))
    assert predicted == pytest.approx(kept_by_a_layer(config, getattr(torch, dtype), rank), rel=0.15)


FITS = {
    ("0.6B", "full"): (16, 24, 48, 80, 141),
    ("0.6B", "LoRA"): (16, 24, 48, 80, 141),
    ("0.6B", "QLoRA"): (16, 24, 48, 80, 141),
    ("4B", "full"): (80, 141),
    ("4B", "LoRA"): (16, 24, 48, 80, 141),
    ("4B", "QLoRA"): (16, 24, 48, 80, 141),
    ("8B", "full"): (),
    ("8B", "LoRA"): (24, 48, 80, 141),
    ("8B", "QLoRA"): (16, 24, 48, 80, 141),
    ("30B-A3B", "full"): (),
    ("30B-A3B", "LoRA"): (80, 141),
    ("30B-A3B", "QLoRA"): (80, 141),
}


@pytest.mark.parametrize("card", [16, 24, 48, 80, 141])
@pytest.mark.parametrize(("model", "way"), FITS)
def test_which_model_fits_on_which_card(model: str, way: str, card: int):
    """An update with one row fits exactly where the sum by hand is less than the card has; no cell is near its edge."""
    shape, room = ModelShape.of_config(CONFIGS[model]), card * GB
    fits = card in FITS[model, way]
    assert (by_hand(CONFIGS[model], way) <= room) is fits
    assert (longest_row(shape, WAYS[way], ONE_ROW, room=room, most=ROW) == ROW) is fits


@pytest.mark.parametrize("model", CONFIGS)
def test_fewer_bits_take_less(model: str):
    """QLoRA is below LoRA, and LoRA below all weights; experts keep their bits, so there QLoRA saves little."""
    full, lora, qlora = (predict(ModelShape.of_config(CONFIGS[model]), way, ONE_ROW).total for way in WAYS.values())
    assert qlora < lora < full


@pytest.mark.parametrize(
    ("way", "settings", "published"),
    [
        ("full", {}, (165, 169)),
        ("LoRA", {}, (18, 24)),
    ],
)
def test_eight_billion_weights_take_what_others_have_published(way: str, settings: dict[str, object], published):
    """8B in bfloat16 with AdamW in fp32: within 15 % of the range that TRL's and verl's users report for one card.

    Unsloth's page names 22 GB for LoRA on 8B; its 6 GB for QLoRA are "the absolute minimum", with an embedding and
    kernels of its own.
    """
    least, most = published
    predicted = predict(ModelShape.of_config(CONFIGS["8B"]), replace(WAYS[way], **settings), ONE_ROW).total / GB
    assert 0.85 * least <= predicted <= 1.15 * most


def test_the_hosts_memory_counts():
    """Copies to undo an update of all weights lie in the host's memory: 12 bytes of each; a small host gets LoRA."""
    shape = ModelShape.of_config(CONFIGS["4B"])
    assert predict(shape, BARE, ONE_ROW).host == pytest.approx(12 * shape.num_parameters, rel=0.01)
    full, adapters = (remedies(shape, BARE, ONE_ROW, room=141 * GB, host=host) for host in (64 * GB, 32 * GB))
    assert not full[0].settings.startswith("lora")
    assert all("lora" in each.settings for each in adapters)
