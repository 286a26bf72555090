"""DPO, KTO and SFT: losses and gradients are TRL's, for any micro-batches; pairs are compared where they part."""

import json
from math import log
from pathlib import Path

import pytest
import torch

from fakes.gradients import trained
from fakes.preference_batches import CASES, drawn_pairs, make_models, preference_groups
from fakes.training_batches import random_groups, training_row
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import Pair, Row, make_batch
from nat.backend.training.completions import completions_of
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import AlgorithmError, UpdateRejected
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout

GOLDEN = json.loads(Path(__file__).with_name("trl_losses.json").read_text())
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def learner(models):
    policy, reference = models
    loaded = load_model(policy, device="cpu")
    return Learner(loaded, Reference(loaded, lambda: load_model(reference, device="cpu").model))


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{n}")
@pytest.mark.parametrize("micro_batch_tokens", [1, 4096])
def test_losses_and_gradients_are_those_of_trl(learner, number, micro_batch_tokens):
    """The loss and two numbers of each parameter's gradient agree with TRL 1.16 on the same batch to 1e-5."""
    (method, settings, _), golden = CASES[number], GOLDEN[number]
    gradients, metrics = trained(
        learner, preference_groups(method), algorithm=method, micro_batch_tokens=micro_batch_tokens, **settings
    )
    assert metrics["loss"] == pytest.approx(golden["loss"], abs=TOLERANCE)
    assert gradients.keys() == golden["gradients"].keys()
    for name, gradient in gradients.items():
        flat = gradient.double().flatten()
        norm, weighted = golden["gradients"][name]
        assert float(flat.norm()) == pytest.approx(norm, rel=TOLERANCE, abs=TOLERANCE), name
        cosines = torch.arange(len(flat), dtype=torch.float64).cos()
        assert float((flat * cosines).sum()) == pytest.approx(weighted, rel=TOLERANCE, abs=TOLERANCE), name


def sampled_pair(loaded, *, rewards=(1.0, 0.0), turns=2):
    """Two rollouts with the same first answer that part in the second one, with the model's own log probabilities."""
    prompt, first, environment = [1, 2, 3], [4, 5], [6, 7]
    rollouts = []
    for reward, answer in zip(rewards, ([8, 9, 10], [8, 30]), strict=True):
        ids = [*prompt, *first, *environment, *answer, *([6, 11, 12] if turns > 2 else [])]
        after = 7 + len(answer)
        sampled = [3, 4, *range(7, after), *(range(after + 1, len(ids)) if turns > 2 else [])]
        rollouts.append(TrainingRollout(reward=reward, rows=[training_row(loaded, ids, sampled)]))
    return TrainingGroup(id="a", rollouts=rollouts)


def test_rollouts_are_compared_where_they_part(learner):
    """DPO trains the answer where two rollouts part, or all from there on; what they share before has no gradient."""
    loaded = learner._policy
    group = sampled_pair(loaded, turns=3)
    rest, turn = (resolve(TrainingConfig(algorithm="dpo", options=options)) for options in ({}, {"completion": "turn"}))
    batch = make_batch([group], rest)
    for resolved, lengths in ((turn, [3, 2]), (rest, [5, 4])):
        completions = completions_of(batch.rows, batch.pairs, resolved)
        assert [each.num_tokens for each in completions] == lengths
        assert [each.better for each in completions] == [True, False]
        assert all(part.start == 2 for each in completions for part in each.parts)


def test_of_several_rows_those_from_the_parting_on_are_compared(learner):
    """Rows before the one where two rollouts part teach nothing; `rest` compares every row after it, `turn` none."""
    before, after = (training_row(learner._policy, [1, 2, 3], [2]), training_row(learner._policy, [7, 8, 9], [1, 2]))
    group = sampled_pair(learner._policy)
    rollouts = [each.model_copy(update={"rows": [before, *each.rows, after]}) for each in group.rollouts]
    for completion, rows in (("rest", [(1, 2), (4, 5)]), ("turn", [(1,), (4,)])):
        resolved = resolve(TrainingConfig(algorithm="dpo", options={"completion": completion}))
        batch = make_batch([group.model_copy(update={"rollouts": rollouts})], resolved)
        found = completions_of(batch.rows, batch.pairs, resolved)
        assert [tuple(part.row for part in each.parts) for each in found] == rows


def test_adapters_are_the_policy_and_the_model_without_them_the_reference(models):
    """With LoRA the reference is the model with its adapter off: at the start the loss is log 2."""
    loaded = load_model(models[0], device="cpu", lora=LoraSettings(rank=4))
    learner = Learner(loaded, Reference(loaded, lambda: pytest.fail("no second copy is needed")))
    _, metrics = trained(learner, preference_groups("dpo"), algorithm="dpo", options={"sft_loss_weight": 0})
    assert metrics["loss"] == pytest.approx(log(2), abs=1e-6)
    assert (metrics["rewards_margin"], metrics["rewards_accuracy"]) == (0, 0)


def test_rejection_sampling_imitates_the_best(learner):
    """The gradient of `rft` is that of `sft` on the best rollouts of each group alone."""
    groups = random_groups(learner._policy)
    chosen, metrics = trained(learner, groups, algorithm="rft")
    best = [
        group.model_copy(update={"rollouts": [max(group.rollouts, key=lambda rollout: rollout.reward)]})
        for group in groups
    ]
    imitated, _ = trained(learner, best, algorithm="sft")
    assert metrics["trained_rollouts"] == len(groups)
    for name, gradient in chosen.items():
        torch.testing.assert_close(gradient, imitated[name], rtol=1e-4, atol=1e-6)


def test_demonstrations_need_no_log_probabilities(learner):
    """`sft` learns from tokens that nobody sampled; policy gradients refuse them, and name what takes them."""
    groups = preference_groups("sft")
    _, metrics = trained(learner, groups, algorithm="sft")
    assert metrics["trained_tokens"] == sum(len(pair["chosen_ids"]) for pair in drawn_pairs())
    assert "logprob_diff_mean" not in metrics
    with pytest.raises(UpdateRejected, match=r"rollout 0 of the group '0' has tokens without a log probability"):
        learner.update(groups, resolve(TrainingConfig()))


@pytest.mark.parametrize("name", ["sft", "rft", "dpo", "kto"])
def test_a_setting_without_effect_is_refused(name):
    """Settings of policy gradients, which these algorithms do not use, are errors that name them."""
    with pytest.raises(AlgorithmError, match=rf"training\.epsilon: without effect with the algorithm '{name}'"):
        resolve(TrainingConfig(algorithm=name, epsilon=0.1))
    assert "epsilon" not in resolve(TrainingConfig(algorithm=name)).report().settings


@pytest.mark.parametrize(("token", "bounds"), [(4, (0, 2)), (5, (0, 2)), (7, (2, 4))])
def test_a_turn_is_the_answer_with_the_first_other_token_or_that_ends_before_it(token, bounds):
    """Answers are whole, from the first token of a row on; token 5 is no answer's, but follows the first one."""
    rows = [
        Row(
            index=number,
            group=0,
            rollout=number,
            input_ids=[1] * 8,
            positions=[2, 3, 5, 6],
            targets=[1] * 4,
            sampler_logprobs=[-1.0] * 4,
            advantages=[advantage] * 4,
            answers=[(0, 2), (2, 4)],
        )
        for number, advantage in enumerate((1.0, -1.0))
    ]
    pair = Pair(group=0, rollouts=(0, 1), rows=(0, 0), token=token)
    resolved = resolve(TrainingConfig(algorithm="dpo", options={"completion": "turn"}))
    found = completions_of(rows, [pair], resolved)
    assert [(part.start, part.stop) for each in found for part in each.parts] == [bounds, bounds]
