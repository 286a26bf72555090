import threading

import pytest

from fakes.listeners import Waiter
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.errors import BackendError

DEADLINE = 30


class SilentText:
    """A detokenizer for tests that do not read the text."""

    def push(self, token_id):
        return False

    def take(self):
        return ""

    def finish(self):
        return ""


def ask(count=1, max_tokens=5, model=""):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    sequences = [Sequence(i, [1, 2, 3], params, SilentText()) for i in range(count)]
    return Request(sequences, Waiter(), stream=True, model=model)


class TwoEngines:
    """An engine pool with scripted names; a name may raise an error."""

    def __init__(self, loaded):
        self.one, self.other = (
            Engine(loaded, policy_version=name, limits=EngineLimits(2)) for name in ("one", "other")
        )
        self.meaning = {"": self.one, "moving": self.one, "other": self.other}

    def names(self):
        return list(self.meaning)

    def knows(self, name):
        return name in self.meaning

    def engine(self, name):
        found = self.meaning[name]
        if isinstance(found, Exception):
            raise found
        return found

    def engines(self):
        return [self.one, self.other]


@pytest.fixture
def pool(loaded):
    return TwoEngines(loaded)


@pytest.fixture
def worker(loaded):
    worker = Worker(Engine(loaded, policy_version="m@0", limits=EngineLimits(2)))
    yield worker
    worker.close()


def test_an_update_waits_for_started_requests_and_holds_others(worker):
    """Started requests finish with the old weights; a request during the update gets the new ones."""
    before, during = ask(count=5, max_tokens=60), ask()
    worker.submit(before)
    assert before.listener.started.wait(DEADLINE)
    finished_first = []

    def update():
        finished_first.append(before.finished)
        worker.submit(during)
        worker.engine.policy_version = "m@1"
        return "updated"

    assert worker.run_exclusive(update).result(DEADLINE) == "updated"
    assert during.listener.done.wait(DEADLINE)
    assert finished_first == [True]
    assert (before.policy_version, during.policy_version) == ("m@0", "m@1")
    assert during.finished


def test_consecutive_updates_starve_no_request(worker):
    """A request that one update delays runs before the next update, however many are queued."""
    inside, gate = threading.Event(), threading.Event()
    worker.run_exclusive(lambda: (inside.set(), gate.wait(DEADLINE)))
    assert inside.wait(DEADLINE)
    request = ask(count=5)
    worker.submit(request)
    updates = [worker.run_exclusive(lambda: request.finished) for _ in range(3)]
    gate.set()
    assert [update.result(DEADLINE) for update in updates] == [False, True, True]


def test_a_cancelled_request_gets_no_more_events(worker):
    """Its slot is free for the next request."""
    request = ask(max_tokens=400)
    worker.submit(request)
    assert request.listener.started.wait(DEADLINE)
    worker.cancel(request)
    worker.run_exclusive(lambda: None).result(DEADLINE)
    assert not request.listener.done.is_set()
    assert worker.engine.requests == []


def test_a_failing_step_fails_its_requests_and_not_the_server(worker, monkeypatch, caplog):
    """The error of a step reaches its requests and the log; the next request is served."""
    broken, fine = ask(), ask()
    with monkeypatch.context() as patch:
        patch.setattr(worker.engine.loaded.model, "forward", lambda **_: 1 // 0)
        worker.submit(broken)
        assert broken.listener.done.wait(DEADLINE)
    assert isinstance(broken.listener.error, ZeroDivisionError)
    assert "sampling step failed" in caplog.text
    worker.submit(fine)
    assert fine.listener.done.wait(DEADLINE)
    assert fine.finished


def test_closing_answers_everyone(loaded):
    """Closing fails unfinished requests with a message, cancels waiting updates and refuses new ones."""
    worker = Worker(Engine(loaded, policy_version="m@0"))
    gate, inside = threading.Event(), threading.Event()

    def hold():
        inside.set()
        gate.wait(DEADLINE)

    holding = worker.run_exclusive(hold)
    assert inside.wait(DEADLINE)
    request = ask()
    worker.submit(request)
    waiting = worker.run_exclusive(lambda: None)
    closing = threading.Thread(target=worker.close)
    closing.start()
    while not worker._closing:
        pass
    gate.set()
    closing.join(DEADLINE)
    assert holding.done()
    assert waiting.cancelled()
    assert isinstance(request.listener.error, BackendError)
    with pytest.raises(BackendError, match="shutting down"):
        worker.submit(ask())
