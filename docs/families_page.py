# ruff: noqa: INP001 - beside the pages, no package
"""The page `reference/families.md`: which families of models the embedded engine trains, by the tests of each one."""

import sys
from pathlib import Path

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.families import FAMILIES, REFUSED

HEAD = """\
# Which families of models

`make docs` generates this page from the families that a test tries: transformers' own classes with two to four small
layers and random weights, in float32 on a CPU. Names are the `model_type` of a model's `config.json`.

## Trained by the embedded engine

The test compares with transformers alone: log probabilities of the sampler, in a second turn, too, and of the learner,
gradients of all weights where two conversations share a prompt, what is served and exported after an update of all
weights and after one with LoRA, and the adapter. Whenever a model of any family is loaded, sampler and learner are
compared with transformers on a few short rows; if they differ, the model is refused.

| | families |
|---|---|
"""
NOTES = """
- Of a class for images and texts (`gemma3`, `gemma4`), the text model is trained; its tower for images stays as it is.
- Of a mixture of experts, LoRA adapts the attention, and `load_in_4bit` leaves the experts in full size.
- `qwen2_moe` and `phimoe` do not pass a sliding window to their attention: `max_seq_length` must not exceed it.

## Refused when it is loaded

| why | families |
|---|---|
"""
REASONS = {
    "linear_attention": "linear attention, or another state instead of keys and values",
    "layers of kind": "layers of another kind than full and sliding attention",
    "s_aux": "attention sinks",
    "softcap": "a cap on attention scores",
    "replaced": "attention of its own, which transformers cannot replace",
    "no packed batch": "makes a mask of its own, or does not pass arguments on to its attention",
    "sampler": "two calls of attention in a layer, which share one cache",
}


def families_page() -> str:
    """Two tables: the families that train, and the others by reason."""
    trained = [family for family in sorted(FAMILIES) if family not in REFUSED]
    routed = [family for family in trained if "num_experts_per_tok" in FAMILIES[family]]
    dense = [family for family in trained if family not in routed]
    refused: dict[str, list[str]] = {}
    for family, said in sorted(REFUSED.items()):
        refused.setdefault(next(why for part, why in REASONS.items() if part in said), []).append(family)
    rows = _row("dense", dense) + _row("mixtures of experts", routed)
    return HEAD + rows + NOTES + "".join(_row(why, refused[why]) for why in REASONS.values())


def _row(first: str, families: list[str]) -> str:
    named = (f"`{family}` ({MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]})" for family in families)
    return f"| {first} | {', '.join(named)} |\n"
