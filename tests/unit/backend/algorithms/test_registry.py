"""The registry finds algorithms and their defaults; the user's settings override them."""

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import BUILT_IN, FACTORS, find_algorithm, resolve
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import AlgorithmError
from nat.wire.training import TrainingConfig

PLUGIN = """
from dataclasses import replace

from pydantic import Field

from nat.backend.algorithms.algorithm import AlgorithmOptions, PolicyTerm
from nat.backend.algorithms.grpo import GRPO


class Options(AlgorithmOptions):
    sharpness: float = Field(default=1.0, gt=0)


def soft(tokens):
    gate = (tokens.options.sharpness * tokens.log_ratio_K).tanh()
    nowhere = gate < -1
    return PolicyTerm(gate * tokens.advantages_K, clipped_low_K=nowhere, clipped_high_K=nowhere)


SOFT = replace(
    GRPO, name="soft", summary="A soft gate.", paper="none", policy_loss=soft, options=Options,
    defaults={"max_grad_norm": 0.5},
)
"""


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


IMITATING = ["dpo", "kto", "rft", "sft"]
"""Algorithms without a ratio of probabilities, which have other settings."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_of_each_algorithm(name):
    """Each policy gradient sets the factors and values of its paper; all other settings keep the general defaults."""
    settings = settings_of(algorithm=name)
    assert tuple(settings[key] for key in NAMES) == DEFAULTS[name]
    general = TrainingConfig().model_dump(mode="json")
    assert {key for key, value in settings.items() if value != general[key]} <= set(NAMES)


def test_every_algorithm_is_described():
    """Each algorithm has a description and a source for the table."""
    assert [a.name for a in BUILT_IN] == [*DEFAULTS, *IMITATING, "distill"]
    assert all(a.summary.endswith(".") and a.paper.startswith("arXiv ") for a in BUILT_IN)


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
    with pytest.raises(AlgorithmError, match=r"training\.options\.kimi_k2_tau: expected a number of at least 0"):
        resolve(TrainingConfig(algorithm="art", options={"kimi_k2_tau": -1}))


def test_a_plugin_trains(tmp_path, tiny_dir, install):
    """An installed package adds a loss with options of its own; it changes the weights and is reported."""
    install("soft-loss", PLUGIN, soft="SOFT")
    config = TrainingConfig(algorithm="soft", options={"sharpness": 2}, learning_rate=1e-3)
    report = resolve(config).report()
    assert (report.algorithm, report.settings["policy_loss"], report.settings["advantage"]) == ("soft", "soft", "grpo")
    assert (report.settings["options"], report.settings["max_grad_norm"]) == ({"sharpness": 2.0}, 0.5)
    loaded = load_model(tiny_dir("qwen2"), device="cpu")
    before = {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}
    metrics = Learner(loaded, Reference(loaded, lambda: loaded.model)).update(random_groups(loaded), resolve(config))
    assert metrics["optimizer_steps"] == 1
    assert any(not torch.equal(before[name], p) for name, p in loaded.trainable_parameters().items())


def test_a_users_factor_replaces_that_of_a_plugin(install):
    """`policy_loss: clip` uses the clipped objective in place of the plug-in's loss."""
    install("soft-loss", PLUGIN, soft="SOFT")
    assert settings_of(algorithm="soft", policy_loss="clip")["policy_loss"] == "clip"


def test_a_plugin_that_fails_to_import_is_named(install):
    """Only a run that selects the broken plug-in fails; other runs do not import it."""
    install("broken-loss", "import no_such_module\n", broken="X")
    with pytest.raises(AlgorithmError, match=r"'broken' of broken-loss \(broken_loss:X\) failed.*no_such_module"):
        find_algorithm("broken")
    assert find_algorithm("grpo").name == "grpo"


def test_a_duplicate_name_is_an_error(install):
    """The error names both owners, even if one of them is built in."""
    install("one-loss", PLUGIN, soft="SOFT", grpo="SOFT")
    install("other-loss", PLUGIN, soft="SOFT")
    with pytest.raises(AlgorithmError, match=r"'soft' is the name of 2 algorithms.*other-loss.*one-loss"):
        find_algorithm("soft")
    with pytest.raises(AlgorithmError, match=r"2 algorithms: a built-in one, one-loss"):
        find_algorithm("grpo")


@pytest.mark.parametrize(("target", "seen"), [("SOFT", "the algorithm 'soft'"), ("soft", "a function")])
def test_an_entry_point_must_be_that_algorithm(install, target, seen):
    """An entry point must be an Algorithm with the entry point's name."""
    install("odd-loss", PLUGIN, odd=target)
    with pytest.raises(AlgorithmError, match=f"'odd' of odd-loss .* gives {seen}"):
        find_algorithm("odd")


def test_defaults_that_contradict_the_settings_are_an_error(install):
    """The error names the algorithm and the setting that it does not have."""
    install("soft-loss", PLUGIN.replace("max_grad_norm", "max_gradient"), soft="SOFT")
    with pytest.raises(AlgorithmError, match=r"'soft' and your settings contradict.*max_gradient"):
        resolve(TrainingConfig(algorithm="soft"))
