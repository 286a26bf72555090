"""A framework's calls are captured exactly: one test per rule and framework."""

import re

import pytest
from conformance.frameworks.compare import differences, rows_of
from conformance.frameworks.driver import Played
from conformance.frameworks.scenario import text_of
from conformance.frameworks.server import Served
from conformance.frameworks.talks import AGENT, CAUSE, EXPERT, ONE_PIXEL, talks_of

BATCHES = ("once", "many", "thread")
REWRITES_PICTURES = {"autogen"}
"""These frameworks decode and encode an image before they send it."""


def test_the_agent_received_every_answer(run: Played) -> None:
    """Each conversation ends with the script's answer."""
    for name, rollout in run.rollouts.items():
        assert rollout["error"] is None
        heard = {
            f"{number} {talk.scene}": list(talk.answers)
            for number, talk in enumerate(talks_of(name))
            if talk.scene not in run.cannot
        }
        assert rollout["answers"] == heard


def test_every_request_is_in_the_script(run: Played) -> None:
    """Every request has an answer in the script and carries its rollout's name."""
    assert run.unknown == []
    assert set(run.served) == set(run.rollouts)


@pytest.mark.parametrize("batch", BATCHES)
def test_every_call_is_captured_exactly(batch: str, run: Played) -> None:
    """Each captured call has the messages, tools, answer, logprobs, ids and function; once, 32 at once, in threads."""
    assert run.names(batch)
    wrong = {name: differences(run.served[name], run.rollouts[name]["calls"]) for name in run.names(batch)}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_steps_name_their_framework(run: Played) -> None:
    """Each call's step names the framework, as `wrapper_type` does."""
    seen = {call["framework"] for rollout in run.rollouts.values() for call in rollout["calls"]}
    assert seen == {run.wrapper_type}


def test_a_refusal_is_a_failed_attempt(run: Played) -> None:
    """The 503 before a retry is recorded as a failed attempt, not as a call."""
    for rollout in run.rollouts.values():
        assert [failed["status"] for failed in rollout["failed"]] == [503]


def test_rows_follow_from_the_tokens(run: Played) -> None:
    """Calls that continue each other's tokens are one row; other calls are neither merged nor dropped."""
    for name, calls in run.served.items():
        assert run.rows(name) == rows_of(calls)


def test_tools_run_with_the_models_arguments(run: Played) -> None:
    """The next request has the results of one call, of two calls in one answer, and of a failing call."""
    for calls in run.served.values():
        assert re.search(r"\b5\b", _new(calls, "sum"))
        assert re.search(r"\b3\b.*\b7\b", _new(calls, "pairs"), re.DOTALL)
        assert CAUSE in _new(calls, "fail")


def test_each_agent_has_its_own_system_prompt(run: Played) -> None:
    """Only the sub-agent's calls have the sub-agent's system prompt."""
    for calls in run.served.values():
        for call in calls:
            prompt = str(call.chat["messages"][0]["content"])
            own, other = (EXPERT, AGENT) if call.scene == "expertise" else (AGENT, EXPERT)
            assert own in prompt
            assert other not in prompt


def test_images_and_streams_are_sent(run: Played) -> None:
    """An image is sent unchanged, unless the framework encodes it again; a streamed call is streamed."""
    picture = ONE_PIXEL.partition(",")[0] if run.framework in REWRITES_PICTURES else ONE_PIXEL
    for calls in run.served.values():
        if "image" not in run.cannot:
            assert any(picture in call.request.decode() for call in calls if call.scene == "image")
        if "stream" not in run.cannot:
            assert all(call.streamed for call in calls if call.scene == "stream")


def _new(calls: list[Served], scene: str) -> str:
    """The texts of other roles that were sent after the model's first answer in a scene.

    A framework may send them as new messages, or add them to an earlier one.
    """
    first, second = (call.chat["messages"] for call in calls if call.scene == scene)
    messages = [message for message in second if message["role"] != "assistant" and message not in first]
    return "\n".join(text_of(message["content"]) for message in messages)
