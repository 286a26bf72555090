"""The vLLM engine on a real vLLM, on a CPU: exact numbers, hand-over, and the faults that it has to survive."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conformance.engines.vllm import CPU_ARGS, servers, vllm_command

from fakes.tiny_model import make_tiny_model
from fakes.vllm_requests import DEADLINE, answered, ask, learner_of, train
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import served_logprobs
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.hand_over import LOAD_ADAPTER, RPC, AdapterHandOver, WeightsHandOver
from nat.backend.vllm.opening import vllm_engine
from nat.errors import EngineFailed, UpdateRejected
from nat.wire.serving import ServeOptions

pytestmark = pytest.mark.large

RANK = 4
PROMPT = tuple(range(40, 110))
"""Longer than two blocks of the prefix cache."""
FEW_BLOCKS = 100
"""Room for 33 prompts of three blocks, until their answers need a fourth."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head size of 32, the smallest that vLLM supports, and an output layer of its own."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", "llama", hidden=128)


@pytest.fixture(scope="module")
def start(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., VllmEngine]]:
    """Start engines; at most one is open at a time."""
    with ExitStack() as last:

        def one(*, lora: bool, args: str = "") -> VllmEngine:
            last.close()
            rank = RANK if lora else None
            options = ServeOptions(
                model=model,
                engine="vllm",
                vllm_command=vllm_command(),
                vllm_args=f"{CPU_ARGS} {args}",
                output_dir=tmp_path_factory.mktemp("out"),
                lora_rank=rank,
                device="cpu",
            )
            loaded = load_model(model, device="cpu", lora=LoraSettings(RANK) if lora else None, max_seq_length=128)
            engine = last.enter_context(vllm_engine(options, loaded, version="m@0"))
            last.callback(engine.close)
            engine.start()
            return engine

        yield one


def assert_exact(engine: VllmEngine, *, seed: int, temperature: float = 1.0) -> None:
    """The log probabilities of an answer are those of the learner's weights."""
    (sequence,) = answered(ask(engine, prompt=PROMPT, seed=seed, temperature=temperature, max_tokens=12))
    ids, first = sequence.prompt_ids + sequence.token_ids, len(PROMPT)
    targets = ids[first:]
    positions = list(range(first - 1, len(ids) - 1))
    row = Row(
        0, 0, 0, ids[:-1], positions, targets, [], [0.0] * len(targets), temperatures=[temperature] * len(targets)
    )
    assert sequence.logprobs == pytest.approx(served_logprobs(engine.loaded, [row])[0].tolist(), abs=1e-4)


def test_adapters_are_handed_over_and_proven(start: Callable[..., VllmEngine]) -> None:
    """Each version is exact on prompts that vLLM has cached under another one; a stale adapter is found and undone."""
    engine = start(lora=True)
    learner = learner_of(engine)
    assert_exact(engine, seed=0)
    for step in (1, 2):
        metrics = train(engine, learner, prompt=40)
        assert metrics["served_diff_max"] < 1e-4
        assert engine.policy_version == f"m@{step}"
        assert_exact(engine, seed=step)
        assert_exact(engine, seed=step, temperature=0.6)
    (whole,) = answered(ask(engine, seed=9))
    streamed = ask(engine, seed=9, stream=True)
    assert answered(streamed)[0].token_ids == whole.token_ids
    assert sum(len(delta.token_ids) for delta in streamed.listener.deltas) == len(whole.token_ids)
    assert isinstance(engine.hand_over, AdapterHandOver)
    engine.hand_over = SamePath(engine.hand_over)
    with pytest.raises(UpdateRejected, match="the sampler disagrees with the learner"):
        train(engine, learner, prompt=40)
    assert engine.policy_version == "m@2"


class SamePath(AdapterHandOver):
    """Loads every adapter in place from the path of the last one, where the old weights are."""

    def __init__(self, other: AdapterHandOver) -> None:
        vars(self).update(vars(other))

    def load(self) -> None:
        path = str((self._folder / self.model).resolve())
        body = {"lora_name": self.model, "lora_path": path, "load_inplace": True}

        assert self._control.post(LOAD_ADAPTER, body).is_success


class CutShort(WeightsHandOver):
    """Damages the weights twice before vLLM reads them: for an update, and when it is to go back."""

    def __init__(self, other: WeightsHandOver) -> None:
        vars(self).update(vars(other))
        self._faults = iter((1, 2))

    def _call(self, path: str, body: Any = None, **query: str) -> dict[str, object]:
        if path == RPC and next(self._faults, None):
            for file in Path(body["kwargs"]["weights_path"]).glob("*.safetensors"):
                file.write_bytes(file.read_bytes()[:200])
        return super()._call(path, body, **query)


def test_all_weights_are_handed_over_and_restored(start: Callable[..., VllmEngine]) -> None:
    """Updates are exact, a rejected one gives the old weights back, and a failed reload restarts vLLM."""
    engine = start(lora=False)
    learner = learner_of(engine)
    for step in (1, 2):
        metrics = train(engine, learner, prompt=40)
        assert metrics["served_diff_max"] < 1e-4
        assert_exact(engine, seed=step)
    with pytest.raises(UpdateRejected):
        train(engine, prompt=40, max_served_difference=1e-12)  # this learner has seen no rounding yet
    assert_exact(engine, seed=3)
    assert isinstance(engine.hand_over, WeightsHandOver)
    engine.hand_over = CutShort(engine.hand_over)
    with pytest.raises(EngineFailed, match="did not take over"):
        train(engine, learner, prompt=40)
    assert (engine.policy_version, learner.step) == ("m@2", 2)
    assert_exact(engine, seed=4)
    train(engine, learner, prompt=40)
    assert_exact(engine, seed=5)


def test_seeds_are_kept_whatever_the_scheduler_does(start: Callable[..., VllmEngine]) -> None:
    """Prompts beyond the budget of a step wait, and a cache that is full restarts answers: each is that of its seed.

    A prompt in parts would end vLLM on a CPU.
    """
    engine = start(lora=False, args=f"--num-gpu-blocks-override {FEW_BLOCKS}")
    prompts = [tuple(40 + (7 * number + place) % 70 for place in range(94)) for number in range(64)]
    assert sum(map(len, prompts)) > 2 * 2048
    together = [ask(engine, prompt=prompt, seed=seed, max_tokens=16) for seed, prompt in enumerate(prompts)]
    found = [answered(request)[0].token_ids for request in together]
    alone = [answered(ask(engine, prompt=prompt, seed=seed, max_tokens=16)) for seed, prompt in enumerate(prompts)]
    assert found == [sequences[0].token_ids for sequences in alone]


def test_nobody_else_reaches_the_control_routes(start: Callable[..., VllmEngine], model: Path) -> None:
    """VLLM's server listens on no port; the folder of its socket is this user's alone. Killed, it is named."""
    engine = start(lora=True)
    ((process, command),) = servers(model)
    socket = Path(command[command.index("--uds") + 1])
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    assert not _listening(process)
    failures: list[BaseException] = []
    engine.watch(failures.append)
    os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE
    while not failures and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [type(failure) for failure in failures] == [EngineFailed]
    with pytest.raises(EngineFailed, match="was killed"):
        ask(engine)


def _listening(process: int) -> list[str]:
    """The inodes of the TCP sockets on which a process listens."""
    links = [str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir()]
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
    tables = [Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    entries = [line.split() for table in tables for line in table.splitlines()]
    return [entry[9] for entry in entries if entry[3] == "0A" and entry[9] in own]
