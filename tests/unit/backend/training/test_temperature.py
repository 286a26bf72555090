"""Tokens sampled at different temperatures, compared with a plain PyTorch implementation."""

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.wire.training import TrainingConfig

MIXED = (0.3, 0.7, 1.0, 1.6)
LOSS = {"beta": 0.2, "old_logprobs": "sampler", "normalize_advantages": False, "max_logprob_difference": 100}


def plain_logprobs(model, row):
    """log-softmax(logits / T) of the sampled tokens [K], row by row without packing, and their entropy."""
    temperatures = [span.temperature for span in row.spans for _ in range(span.size)]
    places = row.targets
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([row.token_ids]), use_cache=False).logits[0]
    model.set_attn_implementation("nat_packed")
    rows = []
    for at, temperature in zip(places, temperatures, strict=True):
        rows.append(torch.log_softmax(logits[at - 1] / temperature, -1))
    table = torch.stack(rows)
    chosen = table.gather(1, torch.tensor([[row.token_ids[at]] for at in places])).squeeze(1)
    return chosen, -(table.exp() * table).sum(-1)


def plain_loss(model, reference, groups):
    """PPO's clipped objective against the sampler plus r·k3 against the reference, averaged over all tokens."""
    total, tokens = 0.0, 0
    for group in groups:
        mean = sum(rollout.reward for rollout in group.rollouts) / len(group.rollouts)
        for rollout in group.rollouts:
            advantage = rollout.reward - mean
            for row in rollout.rows:
                logprobs, _ = plain_logprobs(model, row)
                with torch.no_grad():
                    anchor, _ = plain_logprobs(reference, row)
                sampler = torch.tensor([p for span in row.spans for p in span.logprobs], dtype=torch.float64)
                ratio = (logprobs - sampler).exp()
                objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
                difference = logprobs - anchor
                kl = (logprobs - logprobs.detach()).exp() * (torch.exp(-difference) - 1 + difference)
                total = total - (objective - 0.2 * kl).sum()
                tokens += len(logprobs)
    return total / tokens


def caught(learner, loaded, groups, **options):
    """Gradient and loss of one update just before AdamW uses them."""
    found = {}

    class Stop(Exception):
        pass

    def catch(_):
        found.update({name: p.grad.clone() for name, p in loaded.trainable_parameters().items()})
        raise Stop

    learner.optimizer.clip = catch
    with pytest.raises(Stop):
        learner.update(groups, resolve(TrainingConfig(**options)))
    return found


def moved(loaded, by=0.02):
    """The same model after some updates, so that it differs from its reference."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in loaded.trainable_parameters().values():
            parameter.add_(by * torch.randn_like(parameter))


@pytest.mark.parametrize("temperatures", [(), (0.5,), MIXED])
@pytest.mark.parametrize("micro_batch_tokens", [1, 60, 100_000])
def test_the_gradient_is_that_of_a_plain_implementation(make_learner, loaded64, temperatures, micro_batch_tokens):
    """Policy, sampler and reference use each token's own temperature, however rows are packed.

    The gradients agree up to rounding: the norms of this model compute in fp32 even here.
    """
    groups = random_groups(loaded64, rows=2, prompt=8, temperatures=temperatures)
    reference = load_model(loaded64.path, device="cpu").model.double()
    moved(loaded64)
    got = caught(make_learner(loaded64), loaded64, groups, micro_batch_tokens=micro_batch_tokens, **LOSS)
    loaded64.model.zero_grad()
    plain_loss(loaded64.model, reference, groups).backward()
    for name, parameter in loaded64.trainable_parameters().items():
        torch.testing.assert_close(got[name], parameter.grad, atol=1e-6, rtol=1e-5)
    assert max(float(g.abs().max()) for g in got.values()) > 1e-2
