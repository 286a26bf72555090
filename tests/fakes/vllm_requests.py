"""Requests to an engine, and updates of its weights, as the server and its training jobs make them."""

from typing import Any

from fakes.listeners import Waiter
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.mismatch import Probe
from nat.backend.training.reference import Reference
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.opening import choose_probe
from nat.wire.training import TrainingConfig

DEADLINE = 600


def ask(
    engine: VllmEngine,
    *,
    count: int = 1,
    stream: bool = False,
    prompt: tuple[int, ...] = (5, 6, 7),
    **params: Any,
) -> Request:
    """Submit a request of random tokens."""
    params = SamplingParams(**{"max_tokens": 8, "ignore_eos": True, **params})
    sequences = []
    for i in range(count):
        text = Detokenizer(engine.loaded.tokenizer, params.stop) if stream or params.stop else None
        sequences.append(Sequence(i, list(prompt), params, text))
    request = Request(sequences, Waiter(), stream=stream)
    engine.submit(request)
    return request


def answered(request: Request) -> list[Sequence]:
    """Wait for the answer; raises the error if the request failed."""
    assert request.listener.done.wait(DEADLINE)
    if request.listener.error is not None:
        raise request.listener.error
    return request.sequences


def learner_of(engine: VllmEngine) -> Learner:
    reference = Reference(engine.loaded, lambda: load_model(engine.loaded.path).model)
    return Learner(engine.loaded, reference, Probe(engine.score, choose_probe))


def train(engine: VllmEngine, learner: Learner | None = None, *, prompt: int = 0, **config: Any) -> dict[str, float]:
    """One update on the model thread, as a training job does it; gives the metrics."""
    learner = learner or learner_of(engine)
    groups = random_groups(engine.loaded, prompt=prompt)
    resolved = resolve(TrainingConfig(learning_rate=1e-2, max_kl=None, **config))

    def update() -> dict[str, float]:
        with engine.updating():
            metrics = learner.update(groups, resolved)
            engine.serve(f"m@{learner.step}")
        return metrics

    return engine.run_exclusive(update).result(DEADLINE)
