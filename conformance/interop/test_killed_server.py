"""A real client trains on a server that is killed while it trains, and learns what it would have learned."""

import random
import threading
from pathlib import Path

import pytest
from conformance.interop import scripts
from conformance.interop.serving import serving

from fakes.processes import free_port

ENVIRONMENT = "art-0.5.0"
ROUNDS_KILLED = (1, 2)
"""Rounds in which the server is killed, one after the other."""
DEADLINE_S = 300


def test_a_killed_server_trains_each_round_once(tiny_model: Path, tmp_path: Path) -> None:
    """The step says whether a round was trained, so the client trains it again or not; the answers are the same."""
    dice = random.Random(0)
    ports = {"port": free_port(), "inference_port": free_port()}
    ready, ended = threading.Event(), threading.Event()

    def serve_and_kill() -> None:
        for number in ROUNDS_KILLED:
            with serving(tiny_model, tmp_path, **ports) as server:
                (tmp_path / f"again_{number - 1}").touch()
                ready.set()
                while not (tmp_path / f"round_{number}").exists() and not ended.wait(0.01):
                    pass
                ended.wait(dice.uniform(0.0, 0.5))
                server.process.kill()
        with serving(tiny_model, tmp_path, **ports):
            (tmp_path / f"again_{ROUNDS_KILLED[-1]}").touch()
            ended.wait()

    with serving(tiny_model, tmp_path, **ports) as server:
        told = {**server.settings, "rounds_killed": []}
        undisturbed = scripts.run("art_through_kills", ENVIRONMENT, {**told, "name": "plain"}, tmp_path)
    for file in tmp_path.glob("round_*"):
        file.unlink()
    killer = threading.Thread(target=serve_and_kill)
    killer.start()
    try:
        assert ready.wait(DEADLINE_S)
        told |= {"rounds_killed": ROUNDS_KILLED, "name": "killed"}
        killed = scripts.run("art_through_kills", ENVIRONMENT, told, tmp_path)
    finally:
        ended.set()
        killer.join()
    assert killed["steps"] == undisturbed["steps"] == [0, 1, 2, 3, 4]
    assert killed["probabilities"] == pytest.approx(undisturbed["probabilities"], rel=1e-3)
