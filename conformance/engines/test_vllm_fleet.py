"""Two real vLLM engines on a CPU: exact on both, sessions stay, and one that is killed returns with the weights."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conformance.engines.test_vllm_engine import PROMPT, RANK
from conformance.engines.vllm import servers, vllm_command

from fakes.tiny_model import make_tiny_model
from fakes.vllm_requests import answered, ask, learner_of, train
from nat.backend.inference.sequence import Request
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import served_logprobs
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.opening import vllm_engine
from nat.wire.serving import ServeOptions

pytestmark = pytest.mark.large

RETURN_S = 900


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden=128)


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    with ExitStack() as stack:

        def two(*, lora: bool) -> VllmEngine:
            options = ServeOptions(
                model=model,
                engine="vllm",
                replicas=2,
                vllm_command=vllm_command(),
                vllm_startup_timeout=RETURN_S,
                output_dir=tmp_path,
                lora_rank=RANK if lora else None,
                device="cpu",
            )
            loaded = load_model(model, device="cpu", lora=LoraSettings(RANK) if lora else None, max_seq_length=128)
            engine = stack.enter_context(vllm_engine(options, loaded, version="m@0"))
            stack.callback(engine.close)
            engine.start()
            return engine

        yield two


def assert_exact(engine: VllmEngine, request: Request) -> list[int]:
    """The log probabilities are those of the learner's weights; gives the engines that sampled."""
    (sequence,) = answered(request)
    ids, first = sequence.prompt_ids + sequence.token_ids, len(sequence.prompt_ids)
    positions = list(range(first - 1, len(ids) - 1))
    row = Row(0, 0, 0, ids[:-1], positions, ids[first:], [], [0.0] * len(positions))
    assert sequence.logprobs == pytest.approx(served_logprobs(engine.loaded, [row])[0].tolist(), abs=1e-4)
    return sequence.engines


@pytest.mark.parametrize("lora", [True, False])
def test_an_engine_is_killed_and_returns(start: Callable[..., VllmEngine], lora: bool) -> None:
    """Calls under way are finished by the other one, which takes the next update alone; then both are exact again."""
    engine = start(lora=lora)
    learner = learner_of(engine)
    train(engine, learner, prompt=40)
    sessions = [f"s{number}" for number in range(4)]
    homes = [assert_exact(engine, ask(engine, prompt=PROMPT, session=each, max_tokens=12)) for each in sessions]
    assert homes == [assert_exact(engine, ask(engine, prompt=PROMPT, session=each, seed=1)) for each in sessions]
    assert {home for (home,) in homes} == {0, 1}
    begun = [ask(engine, prompt=PROMPT, session=each, max_tokens=58, stream=True) for each in 2 * sessions]
    for request in begun:
        assert request.listener.started.wait(RETURN_S)
    ((killed, _),) = servers(Path(str(engine._fleet.replicas[homes[0][0]].server.address.socket)))
    began = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    resent = [assert_exact(engine, request) for request in begun]
    print(f"{sum(len(each) > 1 for each in resent)} of {len(begun)} calls went on elsewhere, after {resent}")
    metrics = train(engine, learner, prompt=40)
    assert metrics["served_diff_max"] < 1e-4
    while len(engine._fleet.live) < 2:
        assert time.monotonic() < began + RETURN_S
        time.sleep(0.5)
    print(f"back after {time.monotonic() - began:.0f} s")
    seen = {assert_exact(engine, ask(engine, prompt=PROMPT, session=f"new {at}", seed=at))[0] for at in range(4)}
    assert seen == {0, 1}
    assert train(engine, learner, prompt=40)["served_diff_max"] < 1e-4
    assert_exact(engine, ask(engine, prompt=PROMPT, session=sessions[0]))
