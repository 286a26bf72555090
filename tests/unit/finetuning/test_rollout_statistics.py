"""What an epoch's rollouts tell about their score."""

from random import Random

import pytest

from fakes.run_records import epoch_record, rollout_record
from fakes.runs_on_disk import conversation
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.metrics import SAME_ANSWER, commonest_answer, metrics_of_rollouts


def said(example, output, reward, **fields):
    messages = [{"role": "user", "content": example}, {"role": "assistant", "content": output}]
    return rollout_record(example, output=output, reward=reward, **({"messages": messages, "num_calls": 1} | fields))


def answered(score, rollouts=4000, seed=0):
    """Rollouts of ten examples with five possible answers; `score` gets answer and random generator."""
    random = Random(seed)
    answers = [(str(random.randrange(10)), random.randrange(5)) for _ in range(rollouts)]
    return [said(example, str(answer), score(answer, random)) for example, answer in answers]


def noise(*epochs):
    return Window([epoch_record(n, metrics=metrics_of_rollouts(records)) for n, records in enumerate(epochs)]).noise()


@pytest.mark.parametrize("deviation", [0.0, 0.3, 1.0, 2.0])
def test_the_noise_share_is_that_of_the_variances(deviation):
    """A score of variance .16 with noise of a known variance has the share noise²/(noise² + .16); epochs add up."""
    score = lambda answer, random: (answer == 0) + random.gauss(0, deviation)  # noqa: E731 - one line of a table
    expected = pytest.approx(deviation**2 / (deviation**2 + 0.16), abs=0.03)
    assert noise(answered(score)) == expected
    assert noise(answered(score, 2000, 1), answered(score, 2000, 2)) == expected


def test_length_is_compared_among_rollouts_with_equally_many_calls():
    """An agent that calls its tool is longer and better, which is no reward for length."""
    tool = metrics_of_rollouts([said("q", "", float(n - 1), num_calls=n, completion_tokens=40 * n) for n in (1, 2) * 5])
    longer = metrics_of_rollouts([said("q", "", float(tokens), completion_tokens=tokens) for tokens in range(10)])
    assert "reward/length_correlation" not in tool
    assert longer["reward/length_correlation"] == pytest.approx(1.0)


def test_answers_of_a_cache_are_told_from_lost_calls():
    """They have no call, and the output of a rollout of their example that had; an agent without a client has none."""
    cached = [said("q", "4", 1.0), *[said("q", "4", 1.0, num_calls=0)] * 3]
    lost = [said("q", "4", 1.0, num_calls=0), said("r", "5", 1.0)]
    found = [metrics_of_rollouts(records) for records in (cached, lost)]
    shares = [(each["rollout/without_calls"], each["rollout/cached"]) for each in found]
    assert shares == [(0.75, 0.75), (0.5, 0.0)]


def answers(*texts, **fields):
    """What the model said to as many questions."""
    return [conversation(f"q{n}", 0.5, f"What is {n}?", text, **fields) for n, text in enumerate(texts)]


def test_the_same_answer_to_nearly_all_is_seen():
    """Cut-off answers count by their beginning, others as a whole; calls count, and what the agent makes of them."""
    assert metrics_of_rollouts(answers(*["no"] * 9, "yes"))[SAME_ANSWER] == 0.9
    label = '{"label": "billing"}, as in the first example: '
    endings = [f"{label}{n}" for n in range(10)]
    found = commonest_answer(answers(*endings, truncated=True))
    assert found is not None
    assert (found.share, found.text, found.score) == (1.0, label[:40], 0.5)
    assert metrics_of_rollouts(answers(*endings))[SAME_ANSWER] == 0.1
    assert metrics_of_rollouts(answers(*endings, output="done"))[SAME_ANSWER] == 0.1  # what a tool agent returns
    assert metrics_of_rollouts([said(str(n), "done", 0.5, messages=[]) for n in range(10)])[SAME_ANSWER] == 1.0
    assert SAME_ANSWER not in metrics_of_rollouts(answers(*["no"] * 5))  # too few prompts
    assert SAME_ANSWER not in metrics_of_rollouts([conversation(str(n), 1.0) for n in range(10)])  # one question


@pytest.mark.parametrize(
    ("result", "is_error"), [("ConnectionError: refused", 1), ('{"error": "none"}', 1), ("No failure was found.", 0)]
)
def test_results_of_tools_that_begin_as_an_error_are_counted(result, is_error):
    """In prose, or as the first key of JSON; and answers whose call could not be used, by cause."""
    record = said("a", "", 1.0, lost_calls={"malformed": 2})
    record.conversations[0].messages.append({"role": "tool", "content": result})
    found = metrics_of_rollouts([record])
    assert (found.get("rollout/tool_errors", 0), found["rollout/lost_calls_malformed"]) == (is_error, 2)
