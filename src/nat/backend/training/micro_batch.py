"""Split a batch into optimizer steps, pack the rows of a step into micro-batches, and make tensors of them.

Packing never changes the gradient: rows do not attend to each other, a prefix that rows share gets the gradients of all
of them, and the weight of a token does not depend on its micro-batch.

Shapes: T packed input tokens, K sampled tokens, N rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.training.batch import Row
from nat.backend.training.linear_cross_entropy import TokenScores, token_scores
from nat.backend.tree_attention import PackedTree, common_prefix
from nat.sizing.rules import usual_optimizer_steps
from nat.wire.training import TrainingConfig

_LONG_PREFIX = 1 / 8
"""A longer share of a micro-batch's tokens is not computed again in the next one."""


def optimizer_steps(rows: Sequence[Row], config: TrainingConfig, step: int = 0) -> list[list[Row]]:
    """Give the rows of each optimizer step; every pass of every update has all rows, in another order.

    Groups are shuffled and split evenly into `steps_per_batch` steps (null: one for each ROLLOUTS_PER_STEP rollouts),
    or into as many steps as there are groups if those are fewer, because a step without rows has no gradient. With
    `tokens_per_step` steps are filled one after another with whole rollouts, those of a group side by side; a longer
    rollout gets a step of its own. The prompt that a group shares counts once in a step, so that many short answers to
    a long prompt fit into one step.

    `step` counts the optimizer steps before this update, so that a resumed run has the same order as one that was
    never interrupted.
    """
    steps: list[list[Row]] = []
    for number in range(config.num_iterations):
        random = Random(f"{config.seed}/{step}/{number}")
        if config.tokens_per_step is not None:
            steps += _steps_of_tokens(rows, config.tokens_per_step, random)
        else:
            usual = usual_optimizer_steps(len({row.rollout for row in rows}))
            steps += _even_steps(rows, config.steps_per_batch or usual, random)
    return steps


def _even_steps(rows: Sequence[Row], num_steps: int, random: Random) -> list[list[Row]]:
    order = sorted({row.group for row in rows})
    if num_steps > 1:
        random.shuffle(order)
    steps: list[list[Row]] = [[] for _ in range(min(num_steps, len(order)))]
    step_of_group = {group: steps[number % len(steps)] for number, group in enumerate(order)}
    for row in rows:
        step_of_group[row.group].append(row)
    return steps


def _steps_of_tokens(rows: Sequence[Row], max_tokens: int, random: Random) -> list[list[Row]]:
    groups = _by(rows, attrgetter("group"))
    steps: list[list[Row]] = []
    room = 0
    for group in random.sample(sorted(groups), len(groups)):
        shared = shared_prefix(groups[group])
        rollouts = _by(groups[group], attrgetter("rollout"))
        for rollout in random.sample(sorted(rollouts), len(rollouts)):
            own = rollouts[rollout]
            size = sum(row.num_tokens - shared for row in own)
            begins = not steps or steps[-1][-1].group != group
            if not steps or size + begins * shared > room:
                steps.append([])
                room, begins = max_tokens, True
            steps[-1] += own
            room -= size + begins * shared
    return steps


def pack(rows: Sequence[Row], max_tokens: int, enough: int | None = None, *, shares: bool = True) -> list[list[Row]]:
    """Fill micro-batches of at most `max_tokens` tokens, shared prefixes counted once; a longer row gets its own.

    Unless a pass `shares` them, as on the plain path, prefixes count for every row.

    A micro-batch with `enough` tokens takes more rows only if these would otherwise compute a long prefix again.

    Rows of a group stand together, and rows with a common prefix side by side. The groups with the longest rows come
    first, so that the peak of memory comes first, too.
    """
    enough = max_tokens if enough is None else min(enough, max_tokens)
    longest: dict[int, int] = {}
    for row in rows:
        longest[row.group] = max(longest.get(row.group, 0), len(row.input_ids))
    micro_batches: list[list[Row]] = []
    used, previous = 0, np.empty(0, dtype=np.int64)
    for row in sorted(rows, key=lambda row: (-longest[row.group], row.group, row.input_ids, row.index)):
        ids = np.array(row.input_ids, dtype=np.int64)
        shared = common_prefix(previous, ids) if shares else 0
        most = max_tokens if shared > _LONG_PREFIX * enough else enough
        if used + len(ids) - shared > most or not micro_batches:
            micro_batches.append([])
            used = shared = 0
        micro_batches[-1].append(row)
        used += len(ids) - shared
        previous = ids
    return micro_batches


def shared_prefix(rows: Sequence[Row]) -> int:
    """Number of tokens that all rows have in common at the beginning, without the last one before a sampled token.

    The loss reads the output of that last token, so it is not shared.
    """
    end = min(row.positions[0] for row in rows)
    first = rows[0].input_ids
    return next((i for i in range(end) if any(row.input_ids[i] != first[i] for row in rows)), end)


def _by(rows: Sequence[Row], key: Callable[[Row], int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


@dataclass(frozen=True)
class MicroBatch:
    """One forward pass of the learner: packed rows, and the inputs of the loss at each sampled token."""

    rows: Sequence[Row]
    packed: PackedTree
    keep_K: Tensor
    """Packed index of the output that predicts each sampled token; answers to one prompt share that of their first."""
    targets_K: Tensor
    row_K: Tensor
    """Which of the N rows a sampled token belongs to."""
    sampler_logprobs_K: Tensor
    """0 for tokens that no sampler gave one."""
    sampled_K: Tensor
    """bool: false for those tokens."""
    advantages_K: Tensor
    weights_K: Tensor
    """Share of each token in the loss of the whole optimizer step, times the weight of its rollout."""
    temperatures_K: Tensor | None = None
    """The temperature that each token was sampled at; None if all are 1."""
    teacher_logprobs_K: Tensor | None = None
    """A teacher's log probabilities, 0 where it gave none; None without a teacher."""
    taught_K: Tensor | None = None
    """bool: false where the teacher gave none."""

    def scores(self, model: PreTrainedModel) -> TokenScores:
        """Score the sampled tokens under a model, each at its temperature."""
        return token_scores(model, self.packed, self.keep_K, self.targets_K, self.temperatures_K)


def make_micro_batch(rows: Sequence[Row], weights: Mapping[int, float], device: torch.device) -> MicroBatch:
    """Pack rows, with shared prefixes only once; `weights` holds the share of a token by its rollout."""
    packed = PackedTree([row.input_ids for row in rows], device)
    keep = np.concatenate([path[row.positions] for path, row in zip(packed.paths, rows, strict=True)])
    counts = torch.tensor([len(row.targets) for row in rows])
    of_sampler = [logprob for row in rows for logprob in row.sampler_logprobs]
    of_teacher = [logprob for row in rows for logprob in row.teacher_logprobs or ()]

    def spread(per_row: list[float]) -> Tensor:
        return torch.tensor(per_row, dtype=torch.float64).repeat_interleave(counts).to(device)

    return MicroBatch(
        rows=rows,
        packed=packed,
        keep_K=torch.from_numpy(keep).to(device),
        targets_K=torch.tensor([token for row in rows for token in row.targets], device=device),
        row_K=torch.arange(len(rows)).repeat_interleave(counts).to(device),
        sampler_logprobs_K=logprob_tensor(of_sampler, device),
        sampled_K=known(of_sampler, device),
        advantages_K=torch.tensor([a for row in rows for a in row.advantages], dtype=torch.float64, device=device),
        weights_K=spread([weights.get(row.rollout, 0.0) * row.weight for row in rows]),
        temperatures_K=temperature_tensor([t for row in rows for t in row.sampled_at], device),
        teacher_logprobs_K=logprob_tensor(of_teacher, device) if of_teacher else None,
        taught_K=known(of_teacher, device) if of_teacher else None,
    )


def logprob_tensor(logprobs: Sequence[float | None], device: torch.device) -> Tensor:
    """The log probabilities, 0 where there is none."""
    return torch.tensor([logprob or 0.0 for logprob in logprobs], dtype=torch.float64, device=device)


def known(logprobs: Sequence[float | None], device: torch.device) -> Tensor:
    """Tell where there is a log probability."""
    return torch.tensor([logprob is not None for logprob in logprobs], device=device)


def temperature_tensor(temperatures: Sequence[float], device: torch.device) -> Tensor | None:
    """None if all are 1, so that nothing is divided."""
    if all(temperature == 1 for temperature in temperatures):
        return None
    return torch.tensor(temperatures, dtype=torch.float64, device=device)
