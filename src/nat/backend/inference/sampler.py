"""From logits to tokens: temperature, nucleus, inverse transform sampling; all sequences of a step at once.

Reported log probabilities are those at the request's temperature T, the float32 log-softmax of logits / T: the
distribution that was sampled, which the learner computes again from the same tokens. top_p changes which token is
sampled, not the reported value. At temperature 0, which takes the most likely token, those at temperature 1 are
reported. Random numbers depend on a seed and a position only, so other sequences of the batch change nothing.

Tokens of prompts are scored at temperature 1: log probability, rank and the most likely others at each position.

Shapes: B sequences, V vocabulary, N reported alternatives, K tokens of the chunks of a step, C of one chunk.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nat.backend.inference.scheduler import Chunk
from nat.backend.inference.sequence import ScoredToken, Sequence


@dataclass(frozen=True)
class Sampled:
    """One new token for each sequence of the batch, as Python numbers."""

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]


def sample(logits_BV: Tensor, sequences: list[Sequence]) -> Sampled:
    """Draw each sequence's next token with its own parameters and its own random number.

    The sums are in float64.
    """
    rows = len(sequences) if not logits_BV.is_cpu else max(1, _CACHED_WEIGHTS // logits_BV.shape[-1])
    parts = [
        _sample(logits_BV[at : at + rows].float(), sequences[at : at + rows]) for at in range(0, len(sequences), rows)
    ]
    return Sampled(
        [token_id for part in parts for token_id in part.token_ids],
        [logprob for part in parts for logprob in part.logprobs],
        [alternatives for part in parts for alternatives in part.top_logprobs],
    )


def _sample(logits_BV: Tensor, sequences: list[Sequence]) -> Sampled:
    temperatures = [s.params.temperature for s in sequences]
    scales_B1: Tensor | float = 1.0
    if not all(t in {0.0, 1.0} for t in temperatures):
        scales_B1 = torch.tensor([t or 1.0 for t in temperatures], device=logits_BV.device).unsqueeze(-1)
    largest_B1 = logits_BV.amax(-1, keepdim=True)
    weights_BKS = _weights(logits_BV, largest_B1, scales_B1)
    sums_BK = weights_BKS.sum(-1)
    log_totals_B1 = sums_BK.double().sum(-1, keepdim=True).log()

    token_ids_B1 = logits_BV.new_empty(len(sequences), 1, dtype=torch.long)
    if not all(temperatures):
        greedy = [row for row, t in enumerate(temperatures) if t == 0.0]
        token_ids_B1[greedy] = logits_BV[greedy].argmax(-1, keepdim=True)
    if drawn := [row for row, t in enumerate(temperatures) if t != 0.0]:
        _keep_nuclei(weights_BKS, sums_BK, sequences)
        if len(drawn) == len(sequences):
            token_ids_B1 = _draw(weights_BKS, sums_BK, sequences)
        else:
            token_ids_B1[drawn] = _draw(weights_BKS[drawn], sums_BK[drawn], [sequences[row] for row in drawn])

    def logprobs(logits_BN: Tensor) -> list[list[float]]:
        return ((logits_BN - largest_B1) / scales_B1 - log_totals_B1).tolist()

    alternatives: list[list[tuple[int, float]]] = [[] for _ in sequences]
    if most := max(s.params.top_logprobs for s in sequences):
        logits_BN, ids_BN = logits_BV.topk(min(most, logits_BV.shape[-1]))
        pairs = zip(ids_BN.tolist(), logprobs(logits_BN), sequences, strict=True)
        alternatives = [list(zip(ids, values, strict=True))[: s.params.top_logprobs] for ids, values, s in pairs]
    values = [value for (value,) in logprobs(logits_BV.gather(-1, token_ids_B1))]
    for row, s in enumerate(sequences):
        if s.params.untempered and s.params.temperature not in {0.0, 1.0}:
            values[row] = float(logits_BV[row].log_softmax(-1)[token_ids_B1[row]])
    return Sampled(token_ids_B1.flatten().tolist(), values, alternatives)


def _weights(logits_BV: Tensor, largest_B1: Tensor, scales_B1: Tensor | float) -> Tensor:
    batch, vocabulary = logits_BV.shape
    blocks = -(-vocabulary // _BLOCK)
    size = vocabulary if blocks == 1 else _BLOCK
    weights_BKS = (torch.zeros if blocks * size > vocabulary else torch.empty)(
        batch, blocks, size, dtype=logits_BV.dtype, device=logits_BV.device
    )
    used_BV = weights_BKS.view(batch, -1)[:, :vocabulary]
    torch.sub(logits_BV, largest_B1, out=used_BV)
    if isinstance(scales_B1, Tensor):
        used_BV.div_(scales_B1)
    used_BV.exp_()
    return weights_BKS


def _draw(weights_BKS: Tensor, sums_BK: Tensor, sequences: list[Sequence]) -> Tensor:
    seeds = np.array([s.params.seed for s in sequences], dtype=np.uint64)
    steps = np.array([len(s.token_ids) for s in sequences], dtype=np.uint64)
    fractions_B1 = torch.from_numpy(uniforms(seeds, steps)).to(sums_BK.device).unsqueeze(-1)
    if sums_BK.shape[1] == 1:
        return _reached(weights_BKS.squeeze(1), fractions_B1)[0]
    blocks_B1, cumulative_BK, targets_B1 = _reached(sums_BK, fractions_B1)
    sum_B1 = sums_BK.gather(-1, blocks_B1)
    before_B1 = cumulative_BK.gather(-1, blocks_B1) - sum_B1
    fractions_B1 = ((targets_B1 - before_B1) / sum_B1).clamp_(0.0, _BELOW_ONE)
    block_BS = weights_BKS[torch.arange(len(sequences), device=sums_BK.device), blocks_B1.flatten()]
    return blocks_B1 * block_BS.shape[-1] + _reached(block_BS, fractions_B1)[0]


def _reached(weights_BN: Tensor, fractions_B1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index [B, 1] at which this fraction of each row's sum is reached; with the cumulative sums and the targets."""
    cumulative_BN = weights_BN.cumsum(-1, dtype=torch.float64)
    targets_B1 = fractions_B1 * cumulative_BN[:, -1:]
    return torch.searchsorted(cumulative_BN, targets_B1, right=True), cumulative_BN, targets_B1


def _keep_nuclei(weights_BKS: Tensor, sums_BK: Tensor, sequences: list[Sequence]) -> None:
    """For sequences with top_p, zero all but the smallest set of most likely tokens whose sum reaches it."""
    rows = [row for row, s in enumerate(sequences) if s.params.top_p < 1.0]
    if not rows:
        return
    weights_RKS = weights_BKS[rows]
    weights_RV = weights_RKS.flatten(1)
    top_p_R1 = torch.tensor([[sequences[row].params.top_p] for row in rows], dtype=torch.float64).to(sums_BK.device)
    sorted_RV = _descending(weights_RV)
    cumulative_RV = sorted_RV.cumsum(-1, dtype=torch.float64)
    before_RV = cumulative_RV - sorted_RV
    kept_R1 = (before_RV < top_p_R1 * cumulative_RV[:, -1:]).sum(-1, keepdim=True).clamp_(min=1)
    threshold_R1 = sorted_RV.gather(-1, kept_R1 - 1)
    dropped_RV = weights_RV < threshold_R1
    equal_RV = weights_RV == threshold_R1
    surplus_R1 = weights_RV.shape[-1] - dropped_RV.sum(-1, keepdim=True) - kept_R1
    if surplus_R1.any():  # of equally likely tokens, those with the lowest ids are kept
        dropped_RV |= equal_RV & (equal_RV.cumsum(-1) > equal_RV.sum(-1, keepdim=True) - surplus_R1)
    weights_RV.masked_fill_(dropped_RV, 0.0)
    weights_BKS[rows], sums_BK[rows] = weights_RKS, weights_RKS.sum(-1)


def _descending(weights_RV: Tensor) -> Tensor:
    """Sort each row, largest first; on a CPU numpy is 10 times as fast as torch."""
    if weights_RV.device.type == "cpu":
        return torch.from_numpy(np.sort(weights_RV.numpy())).flip(-1)
    return weights_RV.sort(descending=True).values


_BLOCK = 512
"""Tokens of the vocabulary that are summed together, so that a cumulative sum has few terms."""
_CACHED_WEIGHTS = 2**21
"""Numbers that stay in a CPU's cache; rows beyond them are sampled afterwards."""
_BELOW_ONE = 1.0 - 2.0**-48
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


def score(logits_KV: Tensor, chunks: Iterable[tuple[Sequence, Chunk]]) -> None:
    """Add to each sequence the scores of the tokens that its chunk predicts; the logits are those after each token."""
    at = 0
    for sequence, chunk in chunks:
        logits_CV = logits_KV[at : at + len(chunk.token_ids)]
        at += len(chunk.token_ids)
        # The token after the prompt is sampled, and an interrupted prompt is computed again.
        done, last = len(sequence.prompt_scores), min(chunk.end, len(sequence.prompt_ids) - 1)
        if done < last:
            targets = sequence.prompt_ids[done + 1 : last + 1]
            sequence.prompt_scores += scores(
                logits_CV[done - chunk.start : last - chunk.start], targets, sequence.params.prompt_logprobs or 0
            )


def scores(logits_CV: Tensor, targets: list[int], most: int) -> list[list[ScoredToken]]:
    """Score one token at each position, then the `most` likely ones that are not that token."""
    logits_CV = logits_CV.float()
    targets_C1 = torch.tensor(targets, device=logits_CV.device).unsqueeze(1)
    total_C1 = logits_CV.logsumexp(-1, keepdim=True)
    chosen_C1 = logits_CV.gather(-1, targets_C1)
    ranks = (1 + (logits_CV > chosen_C1).sum(-1)).tolist()
    own = (chosen_C1 - total_C1).squeeze(1).tolist()
    found = [[ScoredToken(*each)] for each in zip(targets, own, ranks, strict=True)]
    if most:
        best_CN, ids_CN = logits_CV.topk(min(most, logits_CV.shape[-1]))
        for entry, ids, values in zip(found, ids_CN.tolist(), (best_CN - total_C1).tolist(), strict=True):
            ranked = enumerate(zip(ids, values, strict=True), start=1)
            entry += [ScoredToken(i, value, rank) for rank, (i, value) in ranked if i != entry[0].token_id]
    return found
