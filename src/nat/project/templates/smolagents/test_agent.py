"""Run `pytest` in this folder. A script plays the model; everything else is real."""

from types import SimpleNamespace

from nat.testing import Call, play

from score import score


def test_the_agent_uses_its_tool():
    """The model reads the tool's result, and its last call has the answer."""
    script = [Call("add", a=1200, b=34), Call("final_answer", answer="1234")]
    played = play("config.yml", "What is 1200 + 34?", script)
    assert played.answer == "1234"
    assert "1234" in str(played.requests[1]["messages"])


def test_the_answer_alone_scores_best():
    """Training raises this score: see that it prefers what you want."""
    item = SimpleNamespace(expected_output_obj="42")
    assert score(item, "42") == 1
    assert score(item, "the sum is 42") == 0.5
    assert score(item, "420") == 0
