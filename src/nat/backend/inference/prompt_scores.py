"""Score the tokens of prompts: log probability, rank and the most likely others at each position, at temperature 1.

Shapes: K tokens of the chunks of a step, C of one chunk, V vocabulary, N reported alternatives.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from nat.backend.inference.scheduler import Chunk
from nat.backend.inference.sequence import ScoredToken, Sequence


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
