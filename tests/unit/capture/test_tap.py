"""The tap without an HTTP library."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fakes.openai_replies import Say, completion, logprob, message_ids, prompt_ids, tool_call
from nat.capture.context import CapturePolicy, ReplacedSampling, capturing
from nat.capture.tap import Attempt, Tap
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType
from nat.data_models.llm import LLMFrameworkEnum
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.wire.sampling import Sampling, read_sampling

CHAT = "/v1/chat/completions"
EXACT = CapturePolicy(logprobs=True, token_ids=True)
HI = [{"role": "user", "content": "hi"}]


def answer(attempt: Attempt, body: bytes, *, events: bool = False) -> None:
    attempt.begin(events=events)
    attempt.feed(body)
    attempt.end()


class Rig:
    """A tap with its steps, and a server that answers inside the call."""

    def __init__(self, **options: Any) -> None:
        self.steps: list[IntermediateStepPayload] = []
        self.sent: list[dict[str, Any]] = []
        self.tap = Tap(self.steps.append, llm_name="player", **options)

    def attempt(self, **fields: Any):
        attempt = self.tap.open(CHAT, json.dumps({"model": "m", "messages": HI, **fields}).encode())
        assert attempt is not None
        self.sent.append(json.loads(attempt.body))
        return attempt

    def call(self, say: Say | None = None, **fields: Any) -> None:
        attempt = self.attempt(**fields)
        answer(attempt, json.dumps(completion(say or Say(), self.sent[-1], chat=True, fingerprint="p@1")).encode())

    @property
    def calls(self):
        return [s.metadata.llm_call for s in self.steps if s.event_type is IntermediateStepType.LLM_END]


def test_a_call_is_recorded_exactly():
    """The record has request and answer with ids, logprobs, reason and policy version."""
    rig = Rig()
    tools = [{"type": "function", "function": {"name": "look"}}]
    said = Say("let me see", (tool_call("look", {"at": 1}),))
    with capturing(EXACT):
        rig.call(said, tools=tools)
    [call] = rig.calls
    ids = message_ids(said.message)
    assert call.model_dump() == {
        "llm_name": "player",
        "model": "m",
        "requested_model": "m",
        "messages": HI,
        "tools": tools,
        "message": {"role": "assistant", "content": "let me see", "tool_calls": [tool_call("look", {"at": 1})]},
        "finish_reason": "tool_calls",
        "temperature": 1.0,
        "untrainable_by": [],
        "logprobs": [logprob(token) for token in ids],
        "logprobs_temperature": 1.0,
        "prompt_token_ids": prompt_ids(HI),
        "token_ids": ids,
        "policy_version": "p@1",
        "broken_prefix": None,
        "lost_call": None,
    }
    assert tokens_of_call(call)


def test_the_steps_of_a_call_follow_the_contract():
    """START has the messages; END has text, choice, usage and record; both have one id and the call's times."""
    ticks = iter([10.0, 12.5])
    rig = Rig(clock=lambda: next(ticks), framework=LLMFrameworkEnum.OPENAI)
    rig.call(Say("hello"), tools=[{"type": "function"}])
    start, end = rig.steps
    assert (start.event_type, end.event_type) == (IntermediateStepType.LLM_START, IntermediateStepType.LLM_END)
    assert start.UUID == end.UUID
    assert (start.event_timestamp, end.event_timestamp, end.span_event_timestamp) == (10.0, 12.5, 10.0)
    assert {start.name, end.name} == {"m"}
    assert {start.framework, end.framework} == {LLMFrameworkEnum.OPENAI}
    assert start.data.input == start.metadata.chat_inputs == HI
    assert start.metadata.tools_schema == [{"type": "function"}]
    assert (end.data.input, end.data.output) == ("hi", "hello")
    assert end.data.payload["message"]["content"] == "hello"
    assert end.usage_info.token_usage.completion_tokens == len("hello") + 1


def test_a_failed_attempt_is_a_span_and_no_call():
    """A failed attempt can be counted, but not trained on."""
    rig = Rig()
    rig.attempt().failed("slow down", status=429)
    answer(rig.attempt(), b"<html>")
    assert rig.calls == []
    told = [step.data.payload for step in rig.steps if step.data is not None]
    assert [(t["llm_name"], t["model"], t["status"]) for t in told] == [("player", "m", 429), ("player", "m", None)]
    assert [t["error"] for t in told] == ["slow down", "the answer is not a JSON object: b'<html>'"]


def test_each_call_has_a_seed_of_its_own_and_a_retry_the_seed_of_its_call():
    """A rollout samples the same again, through failures, too; another rollout samples differently."""

    def seeds(rollout: int, *, fail_first: bool = False) -> list[int]:
        rig = Rig()
        with capturing(CapturePolicy(seed=rollout)):
            if fail_first:
                rig.attempt().failed("lost")
            rig.call()
            rig.call()
        return [body["seed"] for body in rig.sent]

    first, second = seeds(1)
    assert first != second
    assert seeds(1, fail_first=True) == [first, first, second]
    assert set(seeds(2)).isdisjoint({first, second})


def test_ids_are_not_requested_again_after_a_refusal():
    """After one refusal ids are not requested again; another refusal reaches the agent."""
    rig = Rig()
    refusal = b'{"error": {"message": "unknown field return_token_ids"}}'
    with capturing(EXACT):
        attempt = rig.attempt()
        assert attempt.body_without_refused(400, b"too long") is None
        assert attempt.body_without_refused(500, refusal) is None
        again = attempt.body_without_refused(400, refusal)
        assert again is not None
        assert "return_token_ids" not in json.loads(again)
        assert json.loads(again)["logprobs"] is True
        assert attempt.body_without_refused(400, refusal) is None
        rig.call()
    assert "return_token_ids" not in rig.sent[-1]


def test_the_sampling_of_a_call_is_recorded():
    """The record has the agent's parameters, and the LLM's for those that it leaves out."""
    rig = Rig(defaults={"temperature": 0.7, "top_k": 20})
    with capturing(EXACT):
        rig.call()
        rig.call(temperature=0, top_k=-1)
        rig.call(temperature=0.5, top_k=None, top_p=0.9)
    assert [(c.temperature, c.untrainable_by) for c in rig.calls] == [
        (0.7, ["top_k=20"]),
        (1.0, ["temperature=0"]),
        (0.5, ["top_p=0.9", "top_k=20"]),
    ]


AGENTS_OWN = {"temperature": 0, "top_p": 0.9, "logit_bias": {"5": 1}, "max_tokens": 7}


@pytest.mark.parametrize("target", [None, "player", "m", "other, player"])
def test_sampling_is_replaced_on_request_of_the_rollout(target):
    """Neutral values replace the agent's and the LLM's, so that answers are sampled from the model's distribution."""
    rig = Rig(defaults={"top_k": 20, "presence_penalty": 0.5})
    with capturing(replace(EXACT, replaced=ReplacedSampling(0.8, target))):
        rig.call(**AGENTS_OWN)
        rig.call()
    for sent in rig.sent:
        assert read_sampling(sent) == Sampling(0.8)
        assert (sent["top_k"], sent["presence_penalty"]) == (-1, 0)
    assert rig.sent[0]["max_tokens"] == 7
    assert [(c.temperature, c.untrainable_by) for c in rig.calls] == [(0.8, [])] * 2


MALFORMED = [
    '{"choices": [%s]}',
    '{"choices": [{"index": %s}]}',
    '{"choices": [{"message": %s, "delta": %s}]}',
    '{"choices": [{"message": {"content": "a", "tool_calls": %s}, "delta": {"tool_calls": %s}}]}',
    '{"choices": [{"delta": {"tool_calls": [{"index": %s, "function": {}}]}}]}',
    '{"choices": [{"logprobs": %s}]}',
    '{"choices": [{"logprobs": {"content": [{"logprob": %s}]}}]}',
    '{"choices": [{"token_ids": [%s], "prompt_token_ids": [1]}]}',
    '{"choices": [{}], "prompt_token_ids": %s}',
    '{"choices": [{}], "usage": %s}',
]
ODD = ["7", "1e999", "-1", "1" + "0" * 400, "9" * 5000, '"x"', "[7]", '{"a": null}', "[" * 5000]


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("shape", MALFORMED)
def test_no_answer_of_a_server_makes_the_agents_call_raise(shape, events):
    """JSON of any shape, with numbers of any length, is recorded at once: as a call, or as one that failed."""
    for odd in ODD:
        rig = Rig()
        attempt = rig.attempt()
        body = shape.replace("%s", odd).encode()
        answer(attempt, b"data: " + body + b"\n\ndata: [DONE]\n\n" if events else body, events=events)
        assert len(rig.steps) == 2
        assert [step.model_dump_json() for step in rig.steps]
