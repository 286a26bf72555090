import threading

import pytest
import torch

from fakes.listeners import Recorder
from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.errors import BackendError

DEADLINE = 30


class Waiter(Recorder):
    """A listener that a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.done = threading.Event()

    def on_deltas(self, deltas):
        super().on_deltas(deltas)
        self.started.set()

    def on_finished(self):
        super().on_finished()
        self.done.set()

    def on_failed(self, error):
        super().on_failed(error)
        self.done.set()


class SilentText:
    """Text that nobody reads."""

    def push(self, token_id):
        return False

    def take(self):
        return ""

    def finish(self):
        return ""


def ask(count=1, max_tokens=5):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request([Sequence(i, [1, 2, 3], params, SilentText()) for i in range(count)], Waiter(), stream=True)


@pytest.fixture
def worker(loaded):
    worker = Worker(Engine(loaded, policy_version="m@0", max_num_seqs=2))
    yield worker
    worker.close()


def test_an_update_waits_for_what_has_begun_and_holds_what_has_not(worker):
    """All choices of a begun request come from the old weights, a request during the update from the new ones."""
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


def test_updates_run_one_after_another_and_may_fail(worker):
    """The caller gets the exception, the next update and the next request go on."""
    failed = worker.run_exclusive(lambda: 1 // 0)
    second = worker.run_exclusive(lambda: threading.current_thread().name)
    with pytest.raises(ZeroDivisionError):
        failed.result(DEADLINE)
    assert second.result(DEADLINE) == "model"
    request = ask()
    worker.submit(request)
    assert request.listener.done.wait(DEADLINE)
    assert request.finished


def test_a_small_model_is_sampled_on_one_thread_and_trained_on_all(loaded, monkeypatch):
    """Steps of well under a millisecond lose more by waiting for a second thread than it does for them."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    worker = Worker(Engine(loaded, policy_version="m@0"))
    during = worker.run_exclusive(lambda: counts[-1]).result(DEADLINE)
    worker.close()
    assert (during, counts) == (2, [1, 2, 1])


def test_a_cancelled_update_never_runs(worker):
    """As long as it waits, it can be withdrawn."""
    gate = threading.Event()
    worker.run_exclusive(lambda: gate.wait(DEADLINE))
    ran = []
    waiting = worker.run_exclusive(lambda: ran.append(1))
    assert waiting.cancel()
    gate.set()
    worker.run_exclusive(lambda: None).result(DEADLINE)
    assert ran == []


def test_a_cancelled_request_hears_nothing_more(worker):
    """Its slot is free for the next one."""
    request = ask(max_tokens=400)
    worker.submit(request)
    assert request.listener.started.wait(DEADLINE)
    worker.cancel(request)
    worker.run_exclusive(lambda: None).result(DEADLINE)
    assert not request.listener.done.is_set()
    assert worker.engine.requests == []


def test_a_failing_step_fails_its_requests_and_not_the_server(worker, monkeypatch, caplog):
    """The error reaches the asker and the log; the next request is served."""
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


def test_what_does_not_fit_is_refused_at_once(worker):
    """The asker's thread gets the error, the model thread never sees the request."""
    with pytest.raises(ValueError, match="600 new ones"):
        worker.submit(ask(max_tokens=600))


def test_closing_answers_everyone(loaded):
    """Unfinished requests fail with words, waiting updates are cancelled, new ones are refused."""
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
