"""The page `reference/families.md`: which families of models the embedded engine trains, by the tests of each one."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.families import FAMILIES, PLAIN

HEAD = """\
# Which families of models

`make docs` generates this page from the families that a test tries: transformers' own classes with two to four small
layers and random weights, in float32 on a CPU. Names are the `model_type` of a model's `config.json`.

Each trains and is sampled by the embedded engine: as packed rows, or row by row. The test compares with transformers
alone: log probabilities of the sampler, in a second turn, too, and of the learner, gradients of all weights where two
conversations share a prompt, what is served and exported after an update of all weights and after one with LoRA, and
the adapter. Whenever a model of any family is loaded, sampler and learner are compared with transformers on a few
rows, first packed and then row by row; if both differ, the model is refused, and the message says what was tried.

## Packed rows

Batches without padding; the sampler and the learner compute a prompt that rows share once.

| | families |
|---|---|
"""
NOTES = """
- Of a class for images and texts (`gemma3`, `gemma4`), the text model is trained; its tower for images stays as it is.
- Of a mixture of experts, LoRA adapts the attention; routers and experts stay as they are.
- `qwen2_moe` and `phimoe` do not pass a sliding window to their attention: if `max_seq_length` exceeds it, they take
  the plain path.

## The plain path, row by row

Transformers' own code computes each row alone, and the sampler uses its cache. That is slower ([by how
much](../contribute/decisions.md)), prompts are computed for every row again, and a warning at the
start says so with the reason. Settings, algorithms, LoRA, checkpoints and exports are the same.

| why | families |
|---|---|
"""
PLAIN_NOTES = """
- What the cache of a model continues exactly is found when it is loaded: parts of a prompt, single tokens alone
  (`falcon_mamba`, `jamba`, `mamba`, `minimax`), or nothing (`recurrent_gemma`: each token computes its sequence again).
- Of a state space layer (`bamba`, `falcon_h1`, `jamba`, `mamba`, `nemotron_h` …), LoRA changes the
  first linear layer, `in_proj`, since kernels for graphics cards read the weights of the others themselves. Of other
  kinds of linear attention, it changes all linear layers.
- Of a `qwen3_5` checkpoint for images and texts, the text model is loaded, trained and exported.
- A model without a number of positions (`bloom`, `mamba`, `mpt` …) needs `max_seq_length`.
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
    """Two tables: the families that are packed, and the others by reason."""
    packed = [family for family in sorted(FAMILIES) if family not in PLAIN]
    routed = [family for family in packed if "num_experts_per_tok" in FAMILIES[family]]
    dense = [family for family in packed if family not in routed]
    plain: dict[str, list[str]] = {}
    for family, said in sorted(PLAIN.items()):
        plain.setdefault(next(why for part, why in REASONS.items() if part in said), []).append(family)
    rows = _row("dense", dense) + _row("mixtures of experts", routed)
    return HEAD + rows + NOTES + "".join(_row(why, plain[why]) for why in REASONS.values()) + PLAIN_NOTES


def _row(first: str, families: list[str]) -> str:
    return f"| {first} | {', '.join(f'`{family}`' for family in families)} |\n"
