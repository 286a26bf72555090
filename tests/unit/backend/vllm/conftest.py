"""Engines on the scripted vLLM server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakes.vllm_server import FakeVllm
from nat.backend.model_loader import load_model
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.opening import vllm_engine
from nat.wire.serving import ServeOptions

RANK = 4


class Served:
    """An engine, the scripted server behind it, and the failures that it reported."""

    def __init__(self, engine: VllmEngine, vllm: FakeVllm) -> None:
        self.engine = engine
        self.vllm = vllm
        self.loaded = engine.loaded
        self.failures: list[BaseException] = []
        engine.watch(self.failures.append)


@pytest.fixture
def opened(tiny_dir, tmp_path) -> Iterator[Callable[..., Served]]:
    """Open engines on a scripted server; `prepare` may change the server before the engine starts."""
    with ExitStack() as stack:

        def open_one(
            *,
            lora: bool = True,
            prepare: Callable[[FakeVllm], None] = lambda _: None,
            output: Path | None = tmp_path,
            model: Path | None = None,
        ) -> Served:
            rank, source = RANK if lora else None, model or tiny_dir("qwen2" if lora else "llama")
            vllm = stack.enter_context(FakeVllm(source, lora_rank=rank).running())
            prepare(vllm)
            options = ServeOptions(
                model=source,
                engine="vllm",
                vllm_url=vllm.url,
                output_dir=output,
                lora_rank=rank,
                device="cpu",
            )
            loaded = load_model(source, device="cpu", lora=vllm.lora)
            engine = stack.enter_context(vllm_engine(options, loaded, version="m@0"))
            stack.callback(engine.close)
            stack.callback(vllm.may_answer.set)
            engine.start()
            return Served(engine, vllm)

        yield open_one
