"""Kernels for attention in segments: one that computes what torch documents for its own, and wrong ones."""

import torch
from torch import Tensor

from nat.backend.segments import Segments


def written_out(
    query_THD: Tensor,
    key_KGD: Tensor,
    value_KGD: Tensor,
    segments: Segments,
    *,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Segment by segment and head by head, with the causal mask at the lower right corner."""
    group = query_THD.shape[1] // key_KGD.shape[1]
    starts, key_starts = segments.query_starts.tolist(), segments.key_starts.tolist()
    outputs = []
    for number in range(len(starts) - 1):
        query = query_THD[starts[number] : starts[number + 1]]
        keys = slice(key_starts[number], key_starts[number + 1])
        key, value = (x[keys].repeat_interleave(group, dim=1) for x in (key_KGD, value_KGD))
        scores = torch.einsum("qhd,khd->hqk", query, key) * (query.shape[2] ** -0.5 if scale is None else scale)
        at_query = torch.arange(len(query)).unsqueeze(1) + len(key) - len(query)
        at_key = torch.arange(len(key))
        visible = at_key <= at_query
        if window is not None:
            visible &= at_key > at_query - window
        assert len(query) <= segments.most_queries
        assert len(key) <= segments.most_keys
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, value))
    return torch.cat(outputs)


def blind_to_windows(query: Tensor, key: Tensor, value: Tensor, segments: Segments, **options: float | None) -> Tensor:
    """As if a window had no effect."""
    return written_out(query, key, value, segments, scale=options["scale"], window=None)


def without_gradient(query: Tensor, key: Tensor, value: Tensor, segments: Segments, **options: float | None) -> Tensor:
    """The right output, and a gradient for the queries alone."""
    window = options["window"]
    return written_out(
        query,
        key.detach() + 0 * key,
        value.detach() + 0 * value,
        segments,
        scale=options["scale"],
        window=None if window is None else int(window),
    )


def missing(*arguments: object, **options: object) -> Tensor:
    """As torch's kernel on a GPU that is too old."""
    raise RuntimeError("FlashAttention only supports Ampere GPUs or newer")
