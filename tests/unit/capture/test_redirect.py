import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.openai_replies import Say, completion
from nat.capture.policy import CapturePolicy, capturing
from nat.capture.redirect import Address, address_of, current_redirects, redirecting, served_name
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepType

CHAT = "/v1/chat/completions"
HERE = Address("localhost", 8000)


def sent_by(tap: Tap, **fields):
    """What goes out when an agent asks for the base model, and the attempt that it belongs to."""
    attempt = tap.open(CHAT, json.dumps({"model": "base", "messages": [], **fields}).encode())
    assert attempt is not None
    return json.loads(attempt.body), attempt


def test_requests_go_to_the_model_that_is_trained():
    """The name in the body is replaced, together with what the capture adds."""
    tap = Tap(lambda _step: None, base_url="http://127.0.0.1:8000/v1", defaults={"temperature": 0.5})
    with redirecting() as redirects, capturing(CapturePolicy(logprobs=True)):
        redirects.send(HERE, "base", "my_run")
        body, _ = sent_by(tap)
    assert body == {"model": "my_run", "messages": [], "temperature": 0.5, "logprobs": True}


def test_the_record_has_both_names():
    """Whoever chooses calls by a model's name may say the one that the agent asked for or the one that was sent."""
    steps = []
    tap = Tap(steps.append, base_url="http://localhost:8000/v1")
    with redirecting() as redirects:
        redirects.send(HERE, "base", "my_run")
        body, attempt = sent_by(tap)
        attempt.answered(json.dumps(completion(Say(), body, chat=True, fingerprint=None)).encode(), events=False)
    [call] = [step.metadata.llm_call for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert (call.model, call.asked_model) == ("my_run", "base")


def test_other_names_and_other_servers_are_left_alone():
    """A judge on the same server, or the same name elsewhere, gets what it asks for."""
    with redirecting() as redirects:
        redirects.send(HERE, "base", "my_run")
        assert served_name(HERE, "judge") == "judge"
        assert served_name(Address("localhost", 8001), "base") == "base"
        assert served_name(None, "base") == "base"


async def test_tasks_inherit_redirects_and_see_them_change():
    """Rollouts that run side by side ask for the weights of now, not of when they were started."""
    with redirecting() as redirects:
        redirects.send(HERE, "base", "run@1")
        go = asyncio.Event()

        async def ask() -> str:
            await go.wait()
            return served_name(HERE, "base")

        task = asyncio.create_task(ask())
        redirects.send(HERE, "base", "run@2")
        go.set()
        assert await task == "run@2"
    assert served_name(HERE, "base") == "base"


def test_what_is_redirected_can_be_told_to_others():
    """A workflow in another process gets the redirects; a model that is redirected to itself is left out."""
    assert current_redirects() is None
    with redirecting() as redirects:
        redirects.send(HERE, "base", "run@1")
        redirects.send(HERE, "run@1", "run@1")
        assert current_redirects() is redirects
        assert list(redirects.entries()) == [(HERE, "base", "run@1")]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://127.0.0.1:8000",
        "http://0.0.0.0:8000/v1",
        "http://[::1]:8000/v1",
        "http://LOCALHOST:8000",
    ],
)
def test_all_names_of_this_machine_are_one(url):
    """A server on the loopback is the same server under every name that leads to it."""
    assert address_of(url) == Address("localhost", 8000)


def test_a_scheme_has_a_port():
    """A URL without a port means that of its scheme."""
    assert address_of("https://art.example.com/v1") == Address("art.example.com", 443)
    assert address_of("http://art.example.com") == Address("art.example.com", 80)


@pytest.mark.parametrize("url", ["", "art.example.com", "http://", "http://host:port/v1", "ftp://host", "http://[::1"])
def test_what_leads_nowhere_has_no_address(url):
    """An invalid URL raises no error here; sending a request to it does."""
    assert address_of(url) is None


@given(st.integers(1, 65535), st.sampled_from(["10.0.0.5", "gpu-box", "192.168.1.2"]))
def test_other_hosts_differ(port, host):
    """Another machine is never taken for this one, nor one port for another."""
    assert address_of(f"http://{host}:{port}") == Address(host, port)
