"""Losses of whole answers on rollouts of several rows: value and gradient are those of a few lines of plain torch."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, PreTrainedModel

from fakes.gradients import trained
from fakes.preference_batches import make_models
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import Span, TrainingGroup, TrainingRollout, TrainingRow

Parts = tuple[list[int] | tuple[int, ...], ...]
"""A row: prompts and what the environment said (lists), and answers (tuples), in turn."""
BETA = 0.1

SHARED: Parts = ([1, 2, 3], (4, 5))
"""A first row that two rollouts have in common, like the call of a sub-agent or a thinking turn."""
CHOSEN: tuple[Parts, ...] = (SHARED, ([1, 2], (6,), [7], (8, 9, 10)), ([11, 12], (13, 14)), ([15], (16,), [17], (18,)))
REJECTED: tuple[Parts, ...] = (SHARED, ([1, 2], (6,), [7], (8, 30)), ([31], (32, 33, 34)))
THIRD: tuple[Parts, ...] = (SHARED, ([1, 2], (40, 41)))
OTHER: tuple[Parts, ...] = (([50, 51], (52,)), ([50, 53, 54], (55, 56)))
ANOTHER: tuple[Parts, ...] = (([50, 51], (57, 58), [59], (60,)),)


class Models(NamedTuple):
    """The learner, and the same two models in plain transformers and float64."""

    learner: Learner
    policy: PreTrainedModel
    reference: PreTrainedModel
    micro_batch_tokens: int


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(params=[1, 4096], ids=["a row at a time", "packed"])
def models(folders, request):
    loaded = load_model(folders[0], device="cpu")
    learner = Learner(loaded, Reference(loaded, lambda: load_model(folders[1], device="cpu").model))
    plain = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval() for folder in folders)
    return Models(learner, *plain, micro_batch_tokens=request.param)


def tokens_of(parts: Parts) -> tuple[list[int], list[list[int]]]:
    """All tokens of a row, and the places of the tokens of each answer."""
    ids = [token for part in parts for token in part]
    ends = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    bounds = pairwise([0, *ends])
    return ids, [list(range(*own)) for own, part in zip(bounds, parts, strict=True) if isinstance(part, tuple)]


def training_row(parts: Parts, returns: list[float] | None = None) -> TrainingRow:
    ids, answers = tokens_of(parts)
    values = returns or [None] * len(answers)
    spans = [Span(start=own[0], stop=own[-1] + 1, value=value) for own, value in zip(answers, values, strict=True)]
    return TrainingRow(token_ids=ids, spans=spans)


def group(name: str, rollouts: list[tuple[tuple[Parts, ...], float]]) -> TrainingGroup:
    """Rollouts, each with its reward."""
    return TrainingGroup(
        id=name,
        rollouts=[
            TrainingRollout(reward=reward, rows=[training_row(row) for row in rows]) for rows, reward in rollouts
        ],
    )


def summed(model: PreTrainedModel, *chosen: tuple[Parts, list[int]]) -> Tensor:
    """The log probability of the answers with these numbers in some rows."""
    total = torch.zeros((), dtype=torch.float64)
    for parts, numbers in chosen:
        ids, answers = tokens_of(parts)
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        total = total + sum(logprobs[at - 1, ids[at]] for number in numbers for at in answers[number])
    return total


def whole(rows: tuple[Parts, ...]) -> list[tuple[Parts, list[int]]]:
    """All answers of a rollout."""
    return [(parts, list(range(sum(isinstance(part, tuple) for part in parts)))) for parts in rows]


def count(chosen: list[tuple[Parts, list[int]]]) -> int:
    return sum(len(tokens_of(parts)[1][number]) for parts, numbers in chosen for number in numbers)


def check(models: Models, loss: Tensor, groups: list[TrainingGroup], **config: object) -> dict[str, float]:
    """The update has this loss and its gradient."""
    loss.backward()
    gradients, metrics = trained(models.learner, groups, micro_batch_tokens=models.micro_batch_tokens, **config)
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-5)
    for name, parameter in models.policy.named_parameters():
        torch.testing.assert_close(gradients[name].double(), parameter.grad, rtol=1e-4, atol=2e-6)
    return metrics


PAIRS = {
    "rest": (
        [(CHOSEN[1], [1]), *whole(CHOSEN[2:])],
        [(REJECTED[1], [1]), *whole(REJECTED[2:])],
    ),
    "turn": ([(CHOSEN[1], [1])], [(REJECTED[1], [1])]),
}
"""The answers of each side that are compared, by the option `completion`."""


@pytest.mark.parametrize("loss_type", ["sigmoid", "sigmoid_norm", "ipo"])
@pytest.mark.parametrize("completion", PAIRS)
def test_dpo_compares_rollouts_from_where_they_part(models, completion, loss_type):
    """Rows before the one where two rollouts part teach nothing; `rest` compares every row after it, `turn` none."""
    chosen, rejected = PAIRS[completion]

    def ratio(side: list[tuple[Parts, list[int]]]) -> Tensor:
        found = summed(models.policy, *side) - summed(models.reference, *side).detach()
        return found if loss_type == "sigmoid" else found / count(side)

    margin = ratio(chosen) - ratio(rejected)
    loss = (margin - 1 / (2 * BETA)).square() if loss_type == "ipo" else -logsigmoid(BETA * margin)
    loss = loss - 0.2 * summed(models.policy, *chosen) / count(chosen)
    options = {"completion": completion, "loss_type": loss_type}
    metrics = check(
        models, loss, [group("a", [(CHOSEN, 1.0), (REJECTED, 0.0)])], algorithm="dpo", beta=BETA, options=options
    )
    assert metrics["trained_rows"] == len(CHOSEN) + len(REJECTED)


def ratio(models: Models, rows: tuple[Parts, ...]) -> Tensor:
    """How much more likely the policy finds all answers of a rollout than the reference does."""
    return summed(models.policy, *whole(rows)) - summed(models.reference, *whole(rows)).detach()


def kto_loss(models: Models, better: list[tuple[Parts, ...]], worse: list[tuple[Parts, ...]], kl: float) -> Tensor:
    gains = [1 - torch.sigmoid(BETA * (ratio(models, rows) - kl)) for rows in better]
    losses = [1 - torch.sigmoid(-BETA * (ratio(models, rows) - kl)) for rows in worse]
    return torch.stack([*gains, *losses]).mean()


def mismatched_kl(models: Models, pairs: list[tuple[tuple[Parts, ...], tuple[Parts, ...]]]) -> float:
    """The mean over pairs of the log ratio of the second one's answers, row by row after the first one's prompts."""
    ratios = [
        ratio(models, tuple((mine[min(place, len(mine) - 1)][0], *row[1:]) for place, row in enumerate(other)))
        for mine, other in pairs
    ]
    return torch.stack(ratios).mean().item()


KTO_PAIRS = [(CHOSEN, ANOTHER), (REJECTED, OTHER), (THIRD, ANOTHER), (OTHER, CHOSEN), (ANOTHER, REJECTED)]
"""Whose prompts get whose answers, in groups of three and two: never those of the own group."""


def test_kto_compares_whole_rollouts(models):
    """A completion is all rows of a rollout, and so are the mismatched ones, which come from another group."""
    kl = mismatched_kl(models, KTO_PAIRS)
    assert kl > 0, "a baseline of zero shows nothing"
    loss = kto_loss(models, [CHOSEN, OTHER], [REJECTED, THIRD, ANOTHER], kl)
    groups = [
        group("a", [(CHOSEN, 1.0), (REJECTED, 0.0), (THIRD, 0.1)]),
        group("b", [(OTHER, 1.0), (ANOTHER, 0.0)]),
    ]
    metrics = check(models, loss, groups, algorithm="kto", beta=BETA, options={"undesirable_weight": 1.0})
    assert metrics["mismatched_kl"] == pytest.approx(kl, abs=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "imitated"), [("sft", [CHOSEN, REJECTED, OTHER, ANOTHER]), ("rft", [CHOSEN, OTHER])]
)
def test_imitation_takes_every_row_of_a_rollout(models, algorithm, imitated):
    """The loss is the mean over all tokens of all rows: of every rollout, or of the best of each group."""
    answers = [answer for rows in imitated for answer in whole(rows)]
    loss = -summed(models.policy, *answers) / count(answers)
    groups = [group("a", [(CHOSEN, 1.0), (REJECTED, 0.0)]), group("b", [(OTHER, 1.0), (ANOTHER, 0.0)])]
    check(models, loss, groups, algorithm=algorithm)
