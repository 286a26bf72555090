"""Losses and gradients are those of Tinker's documentation, sums over all tokens."""

import numpy as np
import pytest
import torch

from fakes.tiny_fixtures import load_model, loaded, tiny_dir
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import BatchRefused
from nat.tinker.server.losses import resolved, rows_of
from nat.tinker.server.wire import Batch, Datum

__all__ = ["loaded", "tiny_dir"]
BOUNDS = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.1}
TOKENS = ([5, 6, 7, 8, 9, 10], [5, 6, 7, 20, 21, 22, 23, 24], [30, 31, 32])


def clipped(ratio, low, high, advantages):
    return torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)


def defined(name, logprobs, given, config):
    """The loss of one datum, as Tinker's documentation writes it."""
    old, advantages = given.get("logprobs"), given.get("advantages")
    low, high = config.get("clip_low_threshold"), config.get("clip_high_threshold")
    ratio = None if old is None else torch.exp(logprobs - old)
    if name == "cross_entropy":
        return -(logprobs * given["weights"]).sum()
    if name == "importance_sampling":
        return -(ratio * advantages).sum()
    if name == "ppo":
        return -clipped(ratio, low or 0.8, high or 1.2, advantages).sum()
    if name == "cispo":
        low, high = (0.0, 4.0) if low is None else (low, high)
        return -(ratio.clamp(low, high).detach() * logprobs * advantages).sum()
    if name == "gspo":
        mean = (logprobs.detach() - old)[given["sequence_ratio_mask"] != 0].mean()
        ratio = torch.exp(mean + logprobs - logprobs.detach())
        return -clipped(ratio, low, high, advantages).sum()
    return -(logprobs * advantages - 0.5 * config["beta"] * (logprobs - old) ** 2).sum()


@pytest.fixture
def learner(tiny_dir):
    adapter = Adapters(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32")).create(LoraSettings(4), seed=1)
    torch.manual_seed(0)
    for parameter in adapter.loaded.trainable_parameters().values():
        parameter.data.normal_(std=0.05)  # an adapter whose gradients are not zero in one of its halves
    return Learner(adapter.loaded, Reference(adapter.loaded, lambda: adapter.loaded.model))


def batch_of(name, learner, config=None):
    """A batch of unequal rows, with old log probabilities around the model's own."""
    random = np.random.default_rng(3)
    plain = [own_logprobs(learner, tokens).detach().numpy() for tokens in TOKENS]
    data = []
    for tokens, own in zip(TOKENS, plain, strict=True):
        n = len(own)
        mask = np.array([0.0, *[1.0] * (n - 1)])
        given = {"target_tokens": np.array(tokens[1:]), "weights": random.uniform(0, 2, n)}
        if name != "cross_entropy":
            given |= {"logprobs": own + random.normal(0, 0.4, n), "advantages": mask * random.normal(0, 1, n)}
            del given["weights"]
        if name == "gspo":
            given["sequence_ratio_mask"] = mask
        data.append(Datum(np.array(tokens[:-1]), given))
    return Batch("m", 1, data, name, config or {}, forward_only=False)


def own_logprobs(learner, tokens):
    """By transformers' own forward pass and attention."""
    model = learner._policy.model
    packed = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        logits = model(torch.tensor([tokens[:-1]]), use_cache=False).logits[0]
    finally:
        model.set_attn_implementation(packed)
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:]).unsqueeze(1)).squeeze(1)


def gradient(learner):
    found = {n: p.grad.clone() for n, p in learner._policy.trainable_parameters().items() if p.grad is not None}
    learner.optimizer.zero_grad()
    return found


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("cross_entropy", {}),
        ("importance_sampling", {}),
        ("ppo", {}),
        ("ppo", BOUNDS),
        ("cispo", {}),
        ("cispo", BOUNDS),
        ("gspo", BOUNDS),
        ("dro", {"beta": 0.3}),
    ],
)
def test_loss_and_gradient_are_the_definition(learner, name, config):
    """The sum over all tokens and its gradient, to 1e-5 of what autograd gives for the definition."""
    batch = batch_of(name, learner, config)
    total, logprobs = learner.accumulate(rows_of(batch, learner._policy), resolved(name, config))
    ours = gradient(learner)
    expected = torch.zeros(())
    for datum, tokens in zip(batch.data, TOKENS, strict=True):
        given = {key: torch.tensor(value, dtype=torch.float32) for key, value in datum.inputs.items()}
        expected = expected + defined(name, own_logprobs(learner, tokens), given, config)
    expected.backward()
    theirs = gradient(learner)
    assert total == pytest.approx(expected.item(), rel=1e-5)
    assert ours.keys() == theirs.keys()
    size = torch.stack([value.norm() for value in theirs.values()]).norm()
    gap = torch.stack([(ours[key] - theirs[key]).norm() for key in theirs]).norm()
    assert size > 0.1
    assert gap < 1e-5 * size
    assert len(logprobs) == len(TOKENS) * (2 if name == "gspo" else 1)


def test_gradients_of_several_calls_add_up(learner):
    """Two halves give the gradient of the whole; a forward pass adds nothing, and its loss is the same."""
    batch = batch_of("ppo", learner)
    rows, loss = rows_of(batch, learner._policy), resolved("ppo", {})
    whole, _ = learner.accumulate(rows, loss)
    expected = gradient(learner)
    assert learner.accumulate(rows, loss, gradient=False)[0] == pytest.approx(whole)
    assert not learner.optimizer.with_gradient()
    parts = [learner.accumulate(part, loss)[0] for part in (rows[:1], rows[1:])]
    assert sum(parts) == pytest.approx(whole)
    found = gradient(learner)
    assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)


@pytest.mark.parametrize(
    ("name", "config", "finding"),
    [
        ("stable_reinforce", {}, "loss_fn 'stable_reinforce' is not supported"),
        ("custom", {}, "loss_fn 'custom'"),
        ("cispoo", {}, "Did you mean 'cispo'"),
        ("ppo", {"beta": 1.0}, "loss_fn_config.beta: ppo has clip_high_threshold, clip_low_threshold"),
        ("ppo", {"clip_low_threshold": "low"}, "is 'low'"),
        ("ppo", {"clip_low_threshold": 2.0}, "above clip_high_threshold"),
        ("dro", {}, "loss_fn_config.beta of dro is None"),
        ("gspo", {}, "clip_low_threshold of gspo is None"),
    ],
)
def test_unknown_losses_and_settings_are_refused(name, config, finding):
    """By their names, with what there is."""
    with pytest.raises(BatchRefused, match=finding):
        resolved(name, config)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"advantages": None}, "data.0.loss_fn_inputs lacks advantages"),
        ({"mask": np.ones(2)}, "loss_fn_inputs.mask: the loss has only"),
        ({"logprobs": np.ones(3)}, "loss_fn_inputs.logprobs has 3 values; wanted are 2"),
        ({"advantages": np.array([1.0, np.nan])}, "all finite"),
        ({"target_tokens": np.array([1, 10**6])}, "no token of the vocabulary"),
        ({"target_tokens": np.array([1, 1.5])}, "no token of the vocabulary"),
        ({"weights": np.array([1.0, -1.0])}, "negative weight"),
    ],
)
def test_data_that_do_not_fit_are_refused(loaded, change, finding):
    """With the datum's place, what was seen and what is wanted."""
    inputs = {"target_tokens": np.array([1, 2]), "logprobs": np.zeros(2), "advantages": np.ones(2)} | change
    datum = Datum(np.array([5, 6]), {name: value for name, value in inputs.items() if value is not None})
    with pytest.raises(BatchRefused, match=finding):
        rows_of(Batch("m", 1, [datum], "ppo", {}, forward_only=False), loaded)
