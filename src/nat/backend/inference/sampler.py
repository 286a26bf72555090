"""From logits to tokens: temperature, nucleus, inverse transform sampling; all sequences of a step at once.

Reported log probabilities are those at the request's temperature T, the float32 log-softmax of logits / T: the
distribution that was sampled, which the learner computes again from the same tokens. top_p changes which token is
sampled, not the reported value. At temperature 0, which takes the most likely token, those at temperature 1 are
reported. Random numbers depend on a seed and a position only, so other sequences of the batch change nothing.

Shapes: B sequences, V vocabulary, N reported alternatives.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nat.backend.inference.sequence import Sequence


@dataclass(frozen=True)
class Sampled:
    """One new token for each sequence of the batch, as Python numbers."""

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]


def sample(logits_BV: Tensor, sequences: list[Sequence]) -> Sampled:
    """Draw each sequence's next token with its own parameters and its own random number."""
    logprobs_BV = _scale_by_temperature(logits_BV.float(), sequences).log_softmax(-1)
    token_ids_B = _draw(logprobs_BV, sequences)
    logprobs_B = logprobs_BV.gather(-1, token_ids_B.unsqueeze(-1)).squeeze(-1)
    return Sampled(token_ids_B.tolist(), logprobs_B.tolist(), _alternatives(logprobs_BV, sequences))


def _scale_by_temperature(logits_BV: Tensor, sequences: list[Sequence]) -> Tensor:
    """Divide by each sequence's temperature; 0 means no scaling."""
    divisors = [s.params.temperature or 1.0 for s in sequences]
    if all(t == 1.0 for t in divisors):
        return logits_BV
    return logits_BV / torch.tensor(divisors, device=logits_BV.device).unsqueeze(-1)


def _draw(logprobs_BV: Tensor, sequences: list[Sequence]) -> Tensor:
    temperatures = [s.params.temperature for s in sequences]
    if not any(temperatures):
        return logprobs_BV.argmax(-1)
    device = logprobs_BV.device
    probs_BV = logprobs_BV.double().exp()  # a greedy row is drawn like the others and replaced below
    nucleus = [row for row, s in enumerate(sequences) if s.params.top_p < 1.0]
    if nucleus:
        rows = torch.tensor(nucleus, device=device)
        top_p = torch.tensor([sequences[row].params.top_p for row in nucleus], dtype=torch.float64, device=device)
        probs_BV[rows] = _nucleus(probs_BV[rows], top_p)
    seeds = np.array([s.params.seed for s in sequences], dtype=np.uint64)
    steps = np.array([len(s.token_ids) for s in sequences], dtype=np.uint64)
    uniforms_B = torch.from_numpy(uniforms(seeds, steps)).to(device)
    cumulative_BV = probs_BV.cumsum(-1)
    targets_B1 = uniforms_B.unsqueeze(-1) * cumulative_BV[:, -1:]
    token_ids_B = torch.searchsorted(cumulative_BV, targets_B1, right=True).squeeze(-1)
    if not all(temperatures):
        greedy_B = torch.tensor([t == 0.0 for t in temperatures], device=device)
        token_ids_B = torch.where(greedy_B, logprobs_BV.argmax(-1), token_ids_B)
    return token_ids_B


def _nucleus(probs_BV: Tensor, top_p_B: Tensor) -> Tensor:
    """Zero all but the smallest set of most likely tokens whose probabilities sum to top_p (at least one)."""
    sorted_BV, order_BV = probs_BV.sort(stable=True, dim=-1, descending=True)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    kept_BV = sorted_BV.masked_fill(before_BV >= top_p_B.unsqueeze(-1), 0.0)
    kept_BV[:, 0] = sorted_BV[:, 0]
    return torch.zeros_like(probs_BV).scatter_(-1, order_BV, kept_BV)


def _alternatives(logprobs_BV: Tensor, sequences: list[Sequence]) -> list[list[tuple[int, float]]]:
    """The most likely tokens of each sequence that requests them, best first."""
    most = max(s.params.top_logprobs for s in sequences)
    if most == 0:
        return [[] for _ in sequences]
    values_BN, ids_BN = logprobs_BV.topk(min(most, logprobs_BV.shape[-1]))
    pairs = zip(ids_BN.tolist(), values_BN.tolist(), sequences, strict=True)
    return [list(zip(ids, values, strict=True))[: s.params.top_logprobs] for ids, values, s in pairs]


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BITS = 48
_MASK_64 = (1 << 64) - 1


def uniforms(seeds_B: NDArray[np.uint64], positions_B: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in [0, 1) per sequence: SplitMix64's output function over (seed, position).

    48 bits, so that u * total stays below the total in float64 and no impossible last token is drawn.
    """
    mixed = _mix(_mix(seeds_B) + (positions_B + np.uint64(1)) * _GOLDEN)
    return (mixed >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS


def derive_seed(seed: int, stream: int) -> int:
    """An independent 64-bit seed for the `stream`-th choice of a request."""
    pair = np.array([seed & _MASK_64, stream], dtype=np.uint64)
    mixed = _mix(pair[:1])
    return int(_mix(mixed + (pair[1:] + np.uint64(1)) * _GOLDEN)[0])


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014); uint64 arrays overflow silently."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
