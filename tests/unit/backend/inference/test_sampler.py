import numpy as np
import pytest
import torch

from nat.backend.inference.sampler import sample, uniforms
from nat.backend.inference.sequence import SamplingParams, Sequence

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf])


def sequences(count, **params):
    return [Sequence(0, [1], SamplingParams(max_tokens=1, seed=seed, **params)) for seed in range(count)]


def frequencies(count, **params):
    tokens = sample(LOGITS.expand(count, -1), sequences(count, **params)).token_ids
    return np.bincount(tokens, minlength=len(LOGITS))


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_sampled_by_their_probabilities(temperature):
    """20000 draws pass a chi-square test (3 degrees of freedom, 1 %); tokens of probability 0 never occur."""
    count = 20000
    seen = frequencies(count, temperature=temperature)
    expected = (LOGITS / temperature).softmax(-1).numpy() * count
    assert seen[4] == 0
    assert ((seen - expected)[:4] ** 2 / expected[:4]).sum() < 11.34


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    """With probabilities .64 .24 .09 .03, top_p .7 keeps two tokens in their proportion."""
    seen = frequencies(20000, top_p=0.7)
    assert (seen[2:] == 0).all()
    assert seen[0] / seen[1] == pytest.approx(np.e, rel=0.05)
    assert frequencies(50, top_p=1e-6).tolist() == [50, 0, 0, 0, 0]


def test_temperature_zero_takes_the_most_likely_token():
    """At temperature 0 the most likely token is taken, even beside sequences that are sampled."""
    mixed = [*sequences(1, temperature=0.0), *sequences(50), *sequences(1, temperature=0.0)]
    tokens = sample(LOGITS.expand(52, -1), mixed).token_ids
    assert tokens[0] == tokens[-1] == 0
    assert len(set(tokens)) > 1


def test_a_sequence_is_sampled_alike_alone_and_in_a_crowd():
    """Neighbours in the batch with other parameters do not change a sequence."""
    own = sequences(20)
    crowd = [s for pair in zip(own, sequences(20, temperature=0.3, top_p=0.5), strict=True) for s in pair]
    together = sample(LOGITS.expand(40, -1), crowd).token_ids[::2]
    assert together == [sample(LOGITS[None], [s]).token_ids[0] for s in own]


@pytest.mark.parametrize(
    ("params", "reported"),
    [({}, 1), ({"temperature": 0.2}, 0.2), ({"temperature": 3.0}, 3), ({"temperature": 0.0}, 1), ({"top_p": 0.5}, 1)],
)
def test_reported_log_probabilities_are_those_at_the_temperature(params, reported):
    """Values are log-softmax(logits / T) of the token and its alternatives (T is 1 at temperature 0) for any top_p."""
    mixed = [*sequences(8, **params, top_logprobs=4), *sequences(1, temperature=0.7)]
    sampled = sample(LOGITS.expand(9, -1), mixed)
    expected = (LOGITS / reported).log_softmax(-1)
    torch.testing.assert_close(torch.tensor(sampled.logprobs[:8]), expected[sampled.token_ids[:8]])
    assert [value for _, value in sampled.top_logprobs[0]] == pytest.approx(expected[:4].tolist())


def test_alternatives_are_the_most_likely_tokens_best_first():
    """Each sequence gets the requested number of alternatives."""
    asked = [*sequences(1, top_logprobs=2), *sequences(1)]
    first, second = sample(LOGITS.expand(2, -1), asked).top_logprobs
    assert [token for token, _ in first] == [0, 1]
    assert [value for _, value in first] == pytest.approx(LOGITS.log_softmax(-1)[:2].tolist())
    assert second == []


def test_numbers_are_uniform_over_seeds_and_over_positions():
    """Numbers pass Kolmogorov-Smirnov tests for uniformity along each axis (critical value for 1 %)."""
    count = 20000
    ramp, zeros = np.arange(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    for numbers in (uniforms(ramp, zeros), uniforms(zeros, ramp)):
        distance = np.abs(np.sort(numbers) - (np.arange(count) + 0.5) / count).max()
        assert distance < 1.63 / count**0.5
