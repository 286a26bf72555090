"""The options of a training call as the learner's configuration; test_learner shows that each has an effect."""

import pytest

from nat.art.server.batch import training_config
from nat.art.server.serverless import ServerlessExperimentalConfig
from nat.art.wire import ArtDevTrainConfig, ArtTrainConfig, TrainerArgs
from nat.backend.algorithms.registry import resolve
from nat.errors import BatchRefused

NAT = {"learning_rate": 5e-5, "beta": 0.0}


def made(config=(), dev=(), trainer=None):
    sent = TrainerArgs.model_validate(trainer) if trainer is not None else None
    made = training_config(ArtTrainConfig(**dict(config)), ArtDevTrainConfig(**dict(dev)), sent, tokens_per_step=2048)
    settings = resolve(made).report().settings
    own = {name: value for name, value in settings.pop("options").items() if value is not None}
    return settings | own


def test_the_defaults_are_those_of_art():
    """The defaults are CISPO with weights in [0, 5] against the sampler's log probabilities, and ART's AdamW."""
    expected = {
        "learning_rate": 5e-6,
        "advantage": "given",
        "policy_loss": "art",
        "ppo": False,
        "normalize_advantages": False,
        "importance_sampling_level": "token",
        "old_logprobs": "sampler",
        "aggregation": "token_mean",
        "epsilon": 1.0,
        "epsilon_high": 4.0,
        "beta": 0.0,
        "kl_penalty_coef": 0.0,
        "kl_penalty_source": "learner",
        "importance_sampling_cap": None,
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "weight_decay": 0.1,
        "max_grad_norm": 0.1,
        "tokens_per_step": 2048,
        "num_iterations": 1,
        "warmup_steps": 0,
        "max_served_difference": 0.05,
    }
    assert made().items() >= expected.items()


def test_the_serverless_client_gets_the_newest_loss():
    """The serverless protocol exists only in the newest version, whose default is CISPO; null counts as absent."""
    for said in ({}, {"ppo": None}):
        assert ServerlessExperimentalConfig.model_validate(said).ppo is False


@pytest.mark.parametrize(
    ("config", "dev", "expected"),
    [
        ({"learning_rate": 1e-4, "beta": 0.1}, {}, {"learning_rate": 1e-4, "beta": 0.1}),
        ({"kl_penalty_coef": 0.2}, {}, {"kl_penalty_coef": 0.2}),
        ({}, {"kl_penalty_coef": 0.3}, {"kl_penalty_coef": 0.3}),
        ({}, {"kl_penalty_source": "sample"}, {"kl_penalty_source": "sampler"}),
        ({}, {"ppo": True}, {"ppo": True, "epsilon": 0.2, "epsilon_high": 0.2}),
        ({}, {"ppo": True, "epsilon": 0.1}, {"epsilon": 0.1, "epsilon_high": 0.1}),
        ({}, {"ppo": True, "epsilon_high": 0.3}, {"epsilon": 0.2, "epsilon_high": 0.3}),
        ({}, {"ppo": False, "epsilon": 0.1}, {"ppo": False, "epsilon": 0.1, "epsilon_high": 4.0}),
        ({}, {"importance_sampling_level": "geometric_average"}, {"importance_sampling_level": "geometric_average"}),
        ({}, {"kimi_k2_tau": 0.5}, {"kimi_k2_tau": 0.5}),
        ({}, {"mask_prob_ratio": True}, {"mask_prob_ratio": True}),
        (
            {},
            {"max_negative_advantage_importance_sampling_weight": 2.0},
            {"max_negative_advantage_importance_sampling_weight": 2.0},
        ),
        ({}, {"precalculate_logprobs": True}, {"old_logprobs": "learner", "importance_sampling_cap": None}),
        (
            {},
            {"precalculate_logprobs": True, "truncated_importance_sampling": 3.0},
            {"old_logprobs": "learner", "importance_sampling_cap": 3.0},
        ),
        (
            {},
            {"num_trajectories_learning_rate_multiplier_power": 0.5},
            {"num_trajectories_learning_rate_multiplier_power": 0.5},
        ),
    ],
    ids=str,
)
def test_each_option_reaches_the_learner(config, dev, expected):
    """An option that a client sets changes its own setting only."""
    plain = made()
    assert made(config, dev).items() >= expected.items()
    changed = {name for name, value in made(config, dev).items() if plain.get(name) != value}
    assert changed <= expected.keys() | {"ppo", "epsilon", "epsilon_high"}


def test_the_optimizer_of_the_model_is_used():
    """`trainer_args` of the registered model set the optimizer; keys of other trainers are ignored."""
    trainer = {"adam_beta1": 0.8, "adam_beta2": 0.95, "weight_decay": 0.0, "max_grad_norm": 2.0, "optim": "adamw"}
    assert made(trainer=trainer).items() >= {k: v for k, v in trainer.items() if k != "optim"}.items()


@pytest.mark.parametrize(
    ("config", "trainer", "expected"),
    [
        (NAT, {"learning_rate": 1e-4, "beta": 0.1}, (1e-4, 0.1)),
        (NAT, {"beta": 0.1}, (5e-5, 0.1)),
        (NAT, {}, (5e-5, 0.0)),
        (NAT, None, (5e-5, 0.0)),
        ({"learning_rate": 1e-5}, {"learning_rate": 1e-4, "beta": 0.1}, (1e-5, 0.0)),
        ({**NAT, "beta": 0.2}, {"learning_rate": 1e-4, "beta": 0.1}, (5e-5, 0.2)),
        ({**NAT, "kl_penalty_coef": 0.2}, {"learning_rate": 1e-4}, (5e-5, 0.0)),
    ],
    ids=str,
)
def test_the_learning_rate_of_a_nat_yaml_is_used(config, trainer, expected):
    """NAT's plug-in always sends 5e-5 and 0, so its user's values are read from the model's trainer_args."""
    found = made(config, trainer=trainer)
    assert (found["learning_rate"], found["beta"]) == expected


@pytest.mark.parametrize(
    "option",
    [
        {"allow_training_without_logprobs": True},
        {"kl_penalty_reference_step": 3},
        {"kl_penalty_step_lag": 1},
        {"kl_ref_adapter_path": "/adapter"},
        {"plot_tensors": True},
        {"scale_learning_rate_by_reward_std_dev": True},
        {"truncated_importance_sampling": 2.0},
    ],
    ids=lambda o: next(iter(o)),
)
def test_an_option_without_effect_is_refused(option):
    """The error names the option and a remedy; an option's neutral value is allowed."""
    (name, value), *_ = option.items()
    with pytest.raises(BatchRefused, match=rf"dev_config\.{name} is {value!r}") as error:
        made(dev=option)
    assert error.value.hint
    made(dev={name: None if not isinstance(value, bool) else False})
