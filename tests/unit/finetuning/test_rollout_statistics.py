"""What an epoch's rollouts tell about their score."""

from random import Random

import pytest

from fakes.run_records import epoch_record, rollout_record
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.metrics import score_metrics


def said(example, output, reward, **fields):
    messages = [{"role": "user", "content": example}, {"role": "assistant", "content": output}]
    return rollout_record(example, output=output, reward=reward, **({"messages": messages, "num_calls": 1} | fields))


def answered(score, rollouts=4000, seed=0):
    """Rollouts of ten examples with five possible answers; `score` gets answer and random generator."""
    random = Random(seed)
    answers = [(str(random.randrange(10)), random.randrange(5)) for _ in range(rollouts)]
    return [said(example, str(answer), score(answer, random)) for example, answer in answers]


def noise(*epochs):
    return Window([epoch_record(n, metrics=score_metrics(records)) for n, records in enumerate(epochs)]).noise()


@pytest.mark.parametrize("deviation", [0.0, 0.3, 1.0, 2.0])
def test_the_noise_share_is_that_of_the_variances(deviation):
    """A score of variance .16 with noise of a known variance has the share noise²/(noise² + .16); epochs add up."""
    score = lambda answer, random: (answer == 0) + random.gauss(0, deviation)  # noqa: E731 - one line of a table
    expected = pytest.approx(deviation**2 / (deviation**2 + 0.16), abs=0.03)
    assert noise(answered(score)) == expected
    assert noise(answered(score, 2000, 1), answered(score, 2000, 2)) == expected


def test_length_is_compared_among_rollouts_with_equally_many_calls():
    """An agent that calls its tool is longer and better, which is no reward for length."""
    tool = score_metrics([said("q", "", float(n - 1), num_calls=n, completion_tokens=40 * n) for n in (1, 2) * 5])
    longer = score_metrics([said("q", "", float(tokens), completion_tokens=tokens) for tokens in range(10)])
    assert "reward/length_correlation" not in tool
    assert longer["reward/length_correlation"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("result", "is_error"), [("ConnectionError: refused", 1), ('{"error": "none"}', 1), ("No failure was found.", 0)]
)
def test_results_of_tools_that_begin_as_an_error_are_counted(result, is_error):
    """In prose, or as the first key of JSON; and answers whose call could not be read, by cause."""
    record = said("a", "", 1.0, lost_calls={"malformed": 2})
    record.messages.append({"role": "tool", "content": result})
    found = score_metrics([record])
    assert (found.get("rollout/tool_errors", 0), found["rollout/lost_calls_malformed"]) == (is_error, 2)
