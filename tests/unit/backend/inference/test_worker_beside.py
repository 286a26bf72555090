"""Requests that are answered while a function runs beside sampling, such as an update of a second copy."""

import threading

import pytest
import torch

from fakes.listeners import Waiter
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.errors import UpdateCanceled

DEADLINE = 30


def ask(max_tokens=5):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request([Sequence(0, [1, 2, 3], params)], Waiter())


@pytest.fixture
def worker(loaded):
    worker = Worker(Engine(loaded, policy_version="m@0", limits=EngineLimits(2)))
    yield worker
    worker.close()


def test_requests_are_answered_meanwhile_and_later_ones_get_the_new_weights(worker):
    """A function samples between its steps; after `finish_begun`, requests wait for its end."""
    first, last, seen = ask(), ask(), []

    def update():
        worker.submit(first)
        worker.sample()
        seen.append((first.finished, first.policy_version))
        worker.finish_begun()
        worker.submit(last)
        seen.append(last.begun)
        worker.engine.policy_version = "m@1"

    worker.run_exclusive(update, beside=True).result(DEADLINE)
    assert last.listener.done.wait(DEADLINE)
    assert seen == [(True, "m@0"), False]
    assert (last.finished, last.policy_version) == (True, "m@1")


def test_a_function_begins_beside_a_request_that_runs(worker):
    """A long answer does not delay it; the answer is finished with the weights that it began with."""
    long = ask(max_tokens=400)
    worker.submit(long)

    def update():
        begun_with = long.finished
        worker.finish_begun()
        worker.engine.policy_version = "m@1"
        return begun_with, long.finished

    assert worker.run_exclusive(update, beside=True).result(DEADLINE) == (False, True)
    assert long.policy_version == "m@0"


def test_a_request_that_never_began_gets_the_new_weights(worker):
    """`finish_begun` withdraws what waits, whichever engine it waits at."""
    running, waiting = ask(), ask()

    def update():
        worker.submit(running)
        worker.sample()
        worker.finish_begun()
        worker.engine.policy_version = "m@1"
        worker.submit(waiting)

    worker.run_exclusive(update, beside=True).result(DEADLINE)
    assert waiting.listener.done.wait(DEADLINE)
    assert waiting.policy_version == "m@1"


def test_a_function_that_fails_leaves_the_requests_alone(worker):
    """The weights have not changed, so answers continue and cached keys and values stay valid."""
    request = ask(max_tokens=300)
    worker.submit(request)
    failed = worker.run_exclusive(lambda: 1 // 0, beside=True)
    with pytest.raises(ZeroDivisionError):
        failed.result(DEADLINE)
    assert request.listener.done.wait(DEADLINE)
    assert (request.finished, request.policy_version) == (True, "m@0")


def test_updates_of_both_kinds_run_in_turn(worker):
    """An exclusive function that was posted first runs first, and waits for begun requests."""
    request, order = ask(max_tokens=200), []
    worker.submit(request)
    while not worker.run_between(lambda: request.begun).result(DEADLINE):
        pass
    worker.run_exclusive(lambda: order.append(("exclusive", request.finished)))
    worker.run_exclusive(lambda: order.append(("beside", request.finished)), beside=True).result(DEADLINE)
    assert order == [("exclusive", True), ("beside", True)]


def test_closing_ends_a_function_that_waits_for_answers(loaded):
    """The backend does not wait for long answers when it shuts down."""
    worker = Worker(Engine(loaded, policy_version="m@0"))
    worker.submit(ask(max_tokens=500))
    closing = threading.Thread(target=worker.close)

    def update():
        closing.start()
        while not worker._closing:
            pass
        worker.finish_begun()

    future = worker.run_exclusive(update, beside=True)
    with pytest.raises(UpdateCanceled):
        future.result(DEADLINE)
    closing.join(DEADLINE)


def test_an_update_leaves_a_core_to_the_agent_while_requests_come(loaded, monkeypatch):
    """The agent computes beside an update; when it no longer asks, the update has all threads again."""
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    worker, seen = Worker(Engine(loaded, policy_version="m@0"), free_threads=lambda: 4), []

    def update():
        for request in (None, ask(), None):
            if request is not None:
                worker.submit(request)
            worker.sample()
            seen.append(counts[-1])

    worker.run_exclusive(update, beside=True).result(DEADLINE)
    worker.close()
    assert seen == [4, 3, 4]
