"""The registry finds algorithms and their defaults; the user's settings override them."""

import pytest
from pydantic import ValidationError

from nat.backend.algorithms.registry import BUILT_IN, FACTORS, resolve
from nat.errors import AlgorithmError
from nat.registry.description import type_text
from nat.wire.training import TrainingConfig


def settings_of(**config):
    return resolve(TrainingConfig(**config)).report().settings


def test_without_an_algorithm_nothing_changes():
    """The default algorithm, lite_ppo, sets exactly the configuration's defaults."""
    resolved = resolve(TrainingConfig())
    assert resolved.algorithm.name == TrainingConfig().algorithm == "lite_ppo"
    assert resolved.config == TrainingConfig()
    plain = TrainingConfig().model_dump(mode="json", exclude={"algorithm"})
    assert resolved.report().settings == plain


DEFAULTS = {
    "lite_ppo": ("dr_grpo", True, "token", "clip", "token_mean", 0.2, 0.28, False),
    "grpo": ("grpo", False, "token", "clip", "seq_mean", 0.2, 0.28, False),
    "dr_grpo": ("dr_grpo", False, "token", "clip", "constant", 0.2, 0.2, False),
    "dapo": ("grpo", False, "token", "clip", "token_mean", 0.2, 0.28, True),
    "rloo": ("rloo", False, "token", "clip", "constant", 0.2, 0.2, False),
    "reinforce_pp": ("reinforce_pp", False, "token", "clip", "token_mean", 0.2, 0.2, False),
    "gspo": ("grpo", False, "sequence", "clip", "seq_mean", 3e-4, 4e-4, False),
    "cispo": ("grpo", False, "token", "cispo", "token_mean", 0.2, 4.0, False),
}
NAMES = [
    "advantage",
    "normalize_advantages",
    "importance_sampling_level",
    "policy_loss",
    "aggregation",
    "epsilon",
    "epsilon_high",
    "mask_truncated_completions",
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_of_each_algorithm(name):
    """Each policy gradient sets the factors and values of its paper; all other settings keep the general defaults."""
    settings = settings_of(algorithm=name)
    assert tuple(settings[key] for key in NAMES) == DEFAULTS[name]
    general = TrainingConfig().model_dump(mode="json")
    assert {key for key, value in settings.items() if value != general[key]} <= set(NAMES)


def test_a_learning_rate_of_the_algorithms_own_holds_where_the_user_sets_none():
    """Distillation takes a third of the rate that the width gives, and the rate of a user who names one."""
    for name, set_by_user, rate in (("grpo", None, 0.3), ("distill", None, 0.1), ("distill", 0.2, 0.2)):
        given = {"algorithm": name} | ({"learning_rate": set_by_user} if set_by_user else {})
        resolved = resolve(TrainingConfig(**given)).with_learning_rate(0.3)
        assert resolved.config.learning_rate == pytest.approx(rate)


OVERRIDES = [(name, value) for name, factors in FACTORS.items() for value in factors] + [
    ("epsilon", 0.1),
    ("epsilon_high", 0.1),
    ("normalize_advantages", True),
    ("normalize_advantages", False),
    ("mask_truncated_completions", False),
    ("beta", 0.1),
    ("max_grad_norm", 9.0),
]


@pytest.mark.parametrize(("name", "value"), OVERRIDES)
@pytest.mark.parametrize("algorithm", list(DEFAULTS))
def test_the_users_settings_win(algorithm, name, value):
    """A setting of the user wins even if it equals the general default; nothing else changes."""
    plain, changed = settings_of(algorithm=algorithm), settings_of(algorithm=algorithm, **{name: value})
    assert changed == plain | {name: value}


def test_an_unknown_algorithm_names_those_that_exist():
    """The error for an unknown algorithm lists the known ones and suggests the nearest."""
    with pytest.raises(AlgorithmError, match=r"'rlo' is unknown.*cispo.*reinforce_pp.*Did you mean 'rloo'"):
        resolve(TrainingConfig(algorithm="rlo"))
    with pytest.raises(AlgorithmError) as error:
        resolve(TrainingConfig(algorithm="xyzzy"))
    assert "Did you mean" not in str(error.value)


def test_options_of_an_algorithm_are_checked():
    """An unknown option is an error that lists the allowed ones; GRPO, for example, has none."""
    with pytest.raises(AlgorithmError, match=r"(?s)training\.options: unknown 'tau'.*of the algorithm 'grpo': none"):
        resolve(TrainingConfig(algorithm="grpo", options={"tau": 1}))
    with pytest.raises(AlgorithmError, match=r"(?s)training\.options: unknown 'tau'.*kimi_k2_tau"):
        resolve(TrainingConfig(algorithm="art", options={"tau": 1}))
    with pytest.raises(AlgorithmError, match=r"training\.options\.kimi_k2_tau: should be greater than or equal to 0"):
        resolve(TrainingConfig(algorithm="art", options={"kimi_k2_tau": -1}))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e300", "-1e300", f"1{'0' * 400}"])
def test_an_impossible_number_is_refused_by_name(value):
    """NaN, infinity and numbers that overflow are errors at the name of the setting, whatever its default is."""
    for record in (TrainingConfig, *(each.options for each in BUILT_IN)):
        for name, field in record.model_fields.items():
            if "float" in type_text(field.annotation):
                with pytest.raises(ValidationError) as caught:
                    record.model_validate_json(f'{{"{name}": {value}}}')
                assert name in {error["loc"][0] for error in caught.value.errors()}
