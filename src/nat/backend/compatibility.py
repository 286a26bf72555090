"""Refuse, at load time, a model that packed attention would compute wrongly.

Two checks: what the configuration says (per-layer kinds of attention, position schemes that depend on the
length of the batch), and a measurement (the packed forward pass, of rows that share a beginning, too, against
transformers' own, row by row).
"""

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from nat.backend.attention import PACKED_ATTENTION, packed_logits
from nat.backend.tree import PackedTree
from nat.errors import ModelNotSupported

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
_PROBE_LENGTHS = (5, 1, 9, 3)
# Largest |packed - plain| relative to the largest |logit|: rounding stays far below, a leak between rows far above.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_HINT = "use a decoder with plain causal attention, such as Qwen2, Qwen3, Llama, Mistral, Gemma 3 or GPT-2"


def check_config(config: PreTrainedConfig, max_seq_length: int) -> None:
    """Raise if the configuration names something that depends on more than a token's own sequence."""
    text = config.get_text_config()
    strange = sorted(set(getattr(text, "layer_types", None) or ()) - _KNOWN_LAYERS)
    if strange:
        raise ModelNotSupported(f"{config.model_type} has layers of kind {', '.join(strange)}", hint=_HINT)
    chunk = getattr(text, "attention_chunk_size", None)
    if chunk is not None and max_seq_length > chunk:
        raise ModelNotSupported(
            f"{config.model_type} attends within chunks of {chunk} tokens; max_seq_length is {max_seq_length}",
            hint=f"set max_seq_length to at most {chunk}",
        )
    rope = getattr(text, "rope_parameters", None) or {}
    original = rope.get("original_max_position_embeddings") or text.max_position_embeddings
    if rope.get("rope_type") in _LENGTH_DEPENDENT_ROPE and max_seq_length > original:
        raise ModelNotSupported(
            f"{config.model_type} changes its {rope['rope_type']} rotary embedding when a batch exceeds {original} "
            f"tokens, so a sequence's result would depend on its neighbours; max_seq_length is {max_seq_length}",
            hint=f"set max_seq_length to at most {original}",
        )


@torch.no_grad()
def check_forward(model: PreTrainedModel) -> None:
    """Raise unless packed logits equal those of transformers' eager attention on each row alone."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    rows = [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in _PROBE_LENGTHS]
    rows.append(rows[2][:4] + rows[0])
    name = type(model).__name__
    model.set_attn_implementation("eager")
    plain = [model(input_ids=torch.tensor([row], device=model.device), use_cache=False).logits[0] for row in rows]
    model.set_attn_implementation(PACKED_ATTENTION)
    if model.config.get_text_config()._attn_implementation != PACKED_ATTENTION:  # noqa: SLF001 - no public name for it
        raise ModelNotSupported(f"{name} does not let its attention be replaced", hint=_HINT)
    try:
        tree = PackedTree(rows, model.device)
        packed = packed_logits(model, tree, torch.from_numpy(np.concatenate(tree.paths)).to(model.device))
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise ModelNotSupported(f"{name} cannot run packed rows: {error}", hint=_HINT) from error
    difference = _relative_difference(packed, torch.cat(plain))
    tolerance = _TOLERANCE[model.dtype]
    if not all(bool(torch.isfinite(logits).all()) for logits in plain):
        raise ModelNotSupported(
            f"{name} computes logits that are no finite numbers in {str(model.dtype).removeprefix('torch.')}",
            hint="set dtype to float32; if it is that already, the weights are damaged",
        )
    if not difference <= tolerance:
        raise ModelNotSupported(
            f"{name} gives other logits for packed rows than for the same rows alone: they differ by "
            f"{difference:.1e} of the largest logit, at most {tolerance:.0e} is rounding",
            hint=_HINT,
        )


def _relative_difference(packed: Tensor, plain: Tensor) -> float:
    scale = plain.float().abs().max().clamp(min=1e-6)
    return float((packed.float() - plain.float()).abs().max() / scale)
