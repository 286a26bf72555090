"""Our algorithms as named losses, and what is refused."""

import pytest

from nat.backend.training.batch import Row
from nat.errors import AlgorithmError
from nat.tinker.remote.losses import UNCLIPPED, NamedLoss, datum_of, named_loss, settings
from nat.tinker.remote.probe import Normalization
from nat.wire.training import TrainingConfig

SUMS = Normalization()


def found(server=SUMS, *, has=True, **training):
    return settings(TrainingConfig(**training), 1e-3, server, lambda _: has)


@pytest.mark.parametrize(
    ("algorithm", "name", "low", "high"),
    [
        ("lite_ppo", "ppo", 0.8, 1.28),
        ("grpo", "ppo", 0.8, 1.28),
        ("dapo", "ppo", 0.8, 1.28),
        ("rloo", "ppo", 0.8, 1.2),
        ("reinforce_pp", "ppo", 0.8, 1.2),
        ("dr_grpo", "ppo", 0.8, 1.2),
        ("cispo", "cispo", 0.0, 5.0),
        ("gspo", "gspo", 1 - 3e-4, 1 + 4e-4),
        ("sft", "cispo", 1.0, 1.0),
        ("rft", "cispo", 1.0, 1.0),
    ],
)
def test_an_algorithm_has_a_named_loss(algorithm, name, low, high):
    """With its clip range; the ratio compares with the sampler, and nothing is shortened afterwards."""
    given = found(algorithm=algorithm)
    loss = named_loss(given)
    assert loss.name == name
    assert loss.config == pytest.approx({"clip_low_threshold": low, "clip_high_threshold": high})
    assert (given.config.old_logprobs, given.config.max_kl, given.config.learning_rate) == ("sampler", None, 1e-3)


@pytest.mark.parametrize("algorithm", ["distill", "dpo", "kto"])
def test_an_algorithm_without_a_named_loss_is_refused(algorithm):
    """The error says which algorithms there are."""
    with pytest.raises(AlgorithmError, match="has no loss for it") as error:
        found(algorithm=algorithm)
    assert "grpo" in error.value.hint


def test_gspo_is_refused_where_the_server_has_none():
    """The server is asked only for this loss."""
    with pytest.raises(AlgorithmError, match="does not compute the loss 'gspo'"):
        found(algorithm="gspo", has=False)
    assert named_loss(found(algorithm="grpo", has=False)).name == "ppo"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("beta", 0.02),
        ("kl_penalty_coef", 0.1),
        ("old_logprobs", "learner"),
        ("importance_sampling_cap", 2.0),
        ("max_kl", 0.01),
        ("micro_batch_tokens", 64),
        ("gradient_checkpointing", True),
    ],
)
def test_what_a_server_would_not_do_is_refused_by_name(setting, value):
    """Nothing is dropped in silence."""
    with pytest.raises(AlgorithmError, match=f"training.{setting}: "):
        found(**{setting: value})


def test_clipping_is_refused_where_it_has_no_effect():
    """A default norm is left out there; a chosen one is an error."""
    deaf = Normalization(clips=False)
    assert found(deaf).config.max_grad_norm == UNCLIPPED
    assert found().config.max_grad_norm == 1.0
    with pytest.raises(AlgorithmError, match=r"training.max_grad_norm: 0.5, but this Tinker server ignores it"):
        found(deaf, max_grad_norm=0.5)
    assert found(max_grad_norm=0.5).config.max_grad_norm == 0.5


def test_settings_of_adam_are_refused_where_they_are_fixed():
    """A default is accepted there; a chosen one is an error."""
    fixed = Normalization(has_adam=False)
    assert found(fixed).config.adam_beta1 == found().config.adam_beta1
    for name in ("adam_beta1", "adam_beta2", "adam_epsilon"):
        with pytest.raises(
            AlgorithmError, match=rf"training.{name}: 0.5, but this Tinker server has AdamW's settings fix"
        ):
            found(fixed, **{name: 0.5})
        assert getattr(found(**{name: 0.5}).config, name) == 0.5


def test_values_stand_at_the_tokens_that_they_belong_to():
    """Targets are the next tokens; what was not sampled has zeros, for gspo also in the mask."""
    row = Row(0, 0, 0, [5, 6, 7, 8], [1, 3], [7, 9], [-0.5, None], [1.0, 1.0])
    sent = datum_of(row, [0.25, -1.0], NamedLoss("gspo", {}))
    assert sent.token_ids == [5, 6, 7, 8]
    assert sent.inputs == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, -0.5, 0.0, 0.0],
        "advantages": [0.0, 0.25, 0.0, -1.0],
        "sequence_ratio_mask": [0.0, 1.0, 0.0, 1.0],
    }
    assert "sequence_ratio_mask" not in datum_of(row, [0.0, 0.0], NamedLoss("ppo", {})).inputs
