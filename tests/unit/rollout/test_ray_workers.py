"""Rollouts in other processes: the freest plays, and what a process takes with it is played again."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

from nat.capture.context import CapturePolicy, ReplacedSampling
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.errors import WorkflowError
from nat.rollout import ray_workers as module
from nat.rollout.ray_workers import TRIES, Workers

DEADLINE = 5
NOW = datetime(2026, 3, 14, tzinfo=UTC)


class Lost(Exception):
    """As Ray raises it where a process has died."""


class FailedTask(Lost):
    """As Ray raises it where a call in a process raised."""

    cause = TypeError("cannot pickle 'generator' object")


class Ray:
    """What of Ray ends processes."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=FailedTask)

    @staticmethod
    def kill(process):
        process.killed = True


class Process:
    """Plays by a script: the input says what happens."""

    def __init__(self):
        self.play = SimpleNamespace(remote=self._play)
        self.played, self.killed, self.gate, self.gone = [], False, asyncio.Event(), asyncio.Event()

    async def _play(self, value, options):
        self.played.append(options)
        match value:
            case "die":
                self.gone.set()
            case "wait":
                await self.gate.wait()
            case "lock":
                raise FailedTask
            case "hang":
                await asyncio.Event().wait()
        if self.gone.is_set():
            raise Lost("killed")
        return Rollout(options.item_id, options.generation, value, [], None, options.seed, NOW, 0.1)


class Processes:
    def __init__(self, fails_after=100):
        """Processes from the third on wait for nothing."""
        self.started, self._fails_after = [], fails_after

    async def start(self):
        if len(self.started) >= self._fails_after:
            raise WorkflowError("no room")
        self.started.append(Process())
        if len(self.started) > 2:
            self.started[-1].gate.set()
        return self.started[-1], "10.0.0.1"


def item(name, value):
    return EvalInputItem(id=name, input_obj=value, expected_output_obj=None)


async def opened(count, deadline=None, **options):
    processes = Processes(**options)
    workers = Workers(Ray, processes.start, deadline=deadline)
    for _ in range(count):
        await workers.add()
    return workers, processes.started


def play(workers, name, value, **facts):
    facts = {"seed": 7, "generation": 2, "policy": CapturePolicy()} | facts
    return asyncio.create_task(workers.play(item(name, value), **facts))


async def test_the_freest_process_plays():
    """Rollouts spread, and a process whose rollouts have ended gets the next one."""
    workers, (one, other) = await opened(2)
    playing = [play(workers, name, "wait") for name in "abc"]
    await asyncio.sleep(0)
    assert [len(each.played) for each in (one, other)] == [2, 1]
    other.gate.set()
    await asyncio.wait(playing, return_when="FIRST_COMPLETED")
    await play(workers, "d", "answer")
    assert [len(each.played) for each in (one, other)] == [2, 2]
    one.gate.set()
    await asyncio.gather(*playing)


async def test_a_rollout_has_the_options_that_it_would_have_here():
    """Seeds, captured fields and replaced sampling go with it, and the record says whose it is."""
    workers, [process] = await opened(1)
    policy = CapturePolicy(logprobs=True, token_ids=True, seed=9, replaced=ReplacedSampling(0.5, "student"))
    rollout = await play(workers, "a", "answer", policy=policy)
    assert (rollout.item_id, rollout.generation, rollout.seed, rollout.output) == ("a", 2, 7, "answer")
    [options] = process.played
    assert options.model_dump() == {
        "item_id": "a",
        "generation": 2,
        "seed": 7,
        "call_seed": 9,
        "logprobs": True,
        "token_ids": True,
        "temperature": 0.5,
        "target_model": "student",
        "redirects": [],
    }


async def test_what_a_dead_process_played_is_played_again(caplog):
    """By its id and seed, in another process; the dead one is replaced once, whatever it played."""
    workers, started = await opened(2)
    one, other = started
    playing = [play(workers, name, "wait") for name in "abcd"]
    await asyncio.sleep(0)
    one.gone.set()
    one.gate.set()
    other.gate.set()
    async with asyncio.timeout(DEADLINE):
        rollouts = await asyncio.gather(*playing)
    assert [each.item_id for each in rollouts] == list("abcd")
    assert not any(each.failed for each in rollouts)
    assert one.killed
    assert len(started) == 3
    assert len(started[2].played) + len(other.played) == 4
    assert caplog.text.count("is replaced: Lost: killed") == 1


async def test_a_rollout_that_ends_its_process_fails():
    """After three times it is a failure with its cause, and others go on."""
    workers, started = await opened(1)
    rollout = await play(workers, "a", "die")
    assert f"its process ended each of the {TRIES} times that it was played: Lost: killed" in str(rollout.error)
    assert (rollout.error.generation, rollout.seed, rollout.output) == (2, 7, None)
    assert (await play(workers, "b", "answer")).output == "answer"
    assert len(started) == 1 + TRIES


async def test_a_rollout_that_cannot_be_sent_fails():
    """It says what could not be pickled; its process goes on."""
    workers, [process] = await opened(1)
    rollout = await play(workers, "a", "lock")
    assert "cannot be sent to another process: TypeError: cannot pickle" in str(rollout.error)
    assert not process.killed


async def test_a_process_that_hangs_is_replaced(monkeypatch):
    """An agent that blocks its process cannot end by its own time limit."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.01)
    workers, started = await opened(1, deadline=0.01)
    rollout = await play(workers, "a", "hang")
    assert rollout.error.kind == "timeout"
    assert "no answer within 0.01 s (eval.general.item_timeout)" in rollout.error.message
    assert started[0].killed
    assert (await play(workers, "b", "answer")).output == "answer"
