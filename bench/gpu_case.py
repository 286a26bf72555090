"""One shape and mode in one process: sampler, updates and an epoch, each figure a line of JSON.

    python -m bench.gpu_case --shape qwen2.5-0.5b --mode qlora

The parts of the backend run as in its server, without HTTP, so that nothing but torch, transformers and peft is needed.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from random import Random

import torch
from bench.ceiling import num_weights
from bench.shapes import CACHE, SHAPES, checkpoint

from nat.backend.algorithms.registry import resolve
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Delta, Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings
from nat.backend.memory import available_bytes
from nat.backend.model_loader import load_model
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.ledger import JobLedger
from nat.backend.training.reference import Reference
from nat.sizing.memory import Setup, Workload, predict
from nat.sizing.shape import ModelShape
from nat.wire.ledger import LEDGER
from nat.wire.training import JobState, Span, TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout, TrainingRow

ANSWER = 64
"""Tokens of an answer."""
PARTS = ("sampler", "learner", "epoch")
LORA_RANK = 16
MODES = {"full": "full weights", "lora": f"LoRA, rank {LORA_RANK}", "qlora": f"LoRA, rank {LORA_RANK}, on 4 bits"}
GROUP = 8
"""Rollouts of an example."""
DEADLINE_SECONDS = 300.0
Figures = dict[str, float | str]


@dataclass(frozen=True)
class Sizes:
    """How much each part does."""

    chats: list[int]
    lengths: list[int]
    tokens: int
    """Tokens of an update; at least one row per group."""
    prompts: list[int]
    """Tokens of a chat's prompt; the epoch has the first."""


class Answered(threading.Event):
    """Listens to a request, and is set when it has ended."""

    error: BaseException | None = None

    def on_deltas(self, deltas: list[Delta]) -> None:
        """Nothing streams."""

    def on_finished(self) -> None:
        self.set()

    def on_failed(self, error: BaseException) -> None:
        self.error = error
        self.set()


class Case:
    """A loaded model with its sampler and its learner."""

    def __init__(self, shape: str, device: str, sizes: Sizes, folder: Path, mode: str, *, graphs: bool = True) -> None:
        self.mode = mode
        self.sizes = sizes
        self.config = SHAPES[shape]()
        self._random = Random(0)
        path = checkpoint(shape, "bfloat16" if device == "cuda" else "float32", cache=CACHE)
        began = time.perf_counter()
        settings = None if mode == "full" else LoraSettings(LORA_RANK, 2 * LORA_RANK)
        self.loaded = load_model(path, device=device, lora=settings, load_in_4bit=mode == "qlora")
        self.load_seconds = time.perf_counter() - began
        self.peak_bytes = 0
        """The most memory of all parts so far."""
        limits = EngineLimits(max(sizes.chats), graphs=graphs)
        self.worker = Worker(Engine(self.loaded, policy_version="bench@0", limits=limits))
        self.learner = Learner(self.loaded, Reference(self.loaded, lambda: load_model(path, device=device).model))
        checkpoints = Checkpoints(folder / "checkpoints", keep_last=1)
        ledger = JobLedger(checkpoints.folder / LEDGER)
        self.jobs = TrainingJobs(self.worker, self.learner, checkpoints, ledger, output_dir=folder)

    def prompts(self, chats: int, tokens: int) -> list[list[int]]:
        """Draw them before a measurement, so that the chats begin together."""
        return [self._tokens(tokens) for _ in range(chats)]

    def answers(self, prompts: list[list[int]], answer: int = ANSWER) -> list[Sequence]:
        """Sample after all prompts at the same time."""
        waiting = []
        for number, prompt in enumerate(prompts):
            params = SamplingParams(max_tokens=answer, ignore_eos=True, seed=number)
            request = Request([Sequence(0, prompt, params)], Answered())
            self.worker.submit(request)
            waiting.append(request)
        for request in waiting:
            assert isinstance(request.listener, Answered)
            if not request.listener.wait(DEADLINE_SECONDS) or request.listener.error is not None:
                raise RuntimeError(f"a chat was not answered: {request.listener.error!r}")
        return [request.sequences[0] for request in waiting]

    def groups(self, length: int) -> list[TrainingGroup]:
        """Rows of random tokens, the second half of them sampled."""
        half = length // 2
        rows = [
            sampled_row(self._tokens(length - half), self._tokens(half), [-1.0] * half)
            for _ in range(max(GROUP, self.sizes.tokens // length))
        ]
        return grouped(rows)

    def _tokens(self, count: int) -> list[int]:
        vocabulary = self.loaded.vocab_size
        return [self._random.randrange(5, vocabulary) for _ in range(count)]


def sampled_row(prompt: list[int], answer: list[int], logprobs: list[float]) -> TrainingRow:
    """A prompt and its answer."""
    span = Span(start=len(prompt), stop=len(prompt) + len(answer), logprobs=logprobs)
    return TrainingRow(token_ids=prompt + answer, spans=[span])


def grouped(rows: list[TrainingRow]) -> list[TrainingGroup]:
    """Rows as rollouts of examples, with rewards that differ."""
    rollouts = [TrainingRollout(reward=number % 2, rows=[row]) for number, row in enumerate(rows)]
    starts = range(0, len(rollouts), GROUP)
    return [TrainingGroup(id=str(start), rollouts=rollouts[start : start + GROUP]) for start in starts]


def sampler(case: Case, chats: int, prompt: int) -> Figures:
    """Tokens per second of two rounds: kernels and plans that a shape needs are made in the first."""
    rounds = [case.prompts(chats, prompt) for _ in range(2)]
    marks = [time.perf_counter()]
    for prompts in rounds:
        case.answers(prompts)
        marks.append(time.perf_counter())
    first, second = (chats * ANSWER / (after - before) for before, after in pairwise(marks))
    speeds = {"tokens_per_second": second, "first_tokens_per_second": first}
    return {"chats": chats, "prompt": prompt, **speeds, "no_graphs": "; ".join(case.loaded.no_graphs)}


def update(case: Case, length: int) -> Figures:
    """Seconds of the second of two updates, and the share of the device's products that it used."""
    resolved = resolve(TrainingConfig(max_logprob_difference=1e9))
    groups = case.groups(length)
    rows = sum(len(group.rollouts) for group in groups)
    for _ in range(2):
        began = time.perf_counter()
        case.worker.run_exclusive(lambda: case.learner.update(groups, resolved)).result()
        seconds = time.perf_counter() - began
    flops = update_flops(case, length) * rows
    return {"length": length, "rows": rows, "tokens_per_second": rows * length / seconds, "flops": flops / seconds}


def update_flops(case: Case, length: int) -> float:
    """Floating-point operations of one row's update, half of it sampled.

    A token takes 2 per weight forwards, 2 for the gradient of its input and, with full weights, 2 for that of the
    weights; the logits are those of sampled tokens. Causal attention takes 2 x 2 x hidden x length / 2 per token and
    layer forwards and twice that backwards; hidden is the width of all heads. Recomputed activations do not count.
    """
    config = case.config
    logits = config.vocab_size * config.hidden_size
    weights = length * (num_weights(config) - logits) + length // 2 * logits
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    attention = config.num_hidden_layers * 2 * width * length**2
    return float((6 if case.mode == "full" else 4) * weights + 3 * attention)


def epoch(case: Case) -> Figures:
    """The seconds of an epoch's parts, with the alarms of a real one: sampler and learner must agree."""
    prompts = case.prompts(max(case.sizes.chats) + 1, case.sizes.prompts[0])
    marks = [time.perf_counter()]
    sequences = case.answers(prompts[1:])
    marks.append(time.perf_counter())
    rows = [sampled_row(s.prompt_ids, s.token_ids, s.logprobs) for s in sequences]
    state = asyncio.run(_trained(case.jobs, TrainingJob(id="epoch", groups=grouped(rows))))
    marks.append(time.perf_counter())
    case.answers(prompts[:1], answer=1)
    marks.append(time.perf_counter())
    rollouts, job, first = (after - before for before, after in pairwise(marks))
    trained = state.metrics.get("seconds", 0.0)
    return {
        "status": state.status if state.failure is None else state.failure.message,
        "rollouts": len(rows),
        "load_seconds": case.load_seconds,
        "rollout_seconds": rollouts,
        "update_seconds": trained,
        "checkpoint_seconds": job - trained,
        "first_answer_seconds": first,
        "logprob_diff_mean": state.metrics.get("logprob_diff_mean", -1.0),
        "served_diff_mean": state.metrics.get("served_diff_mean", -1.0),
    }


async def _trained(jobs: TrainingJobs, job: TrainingJob) -> JobState:
    jobs.submit(job)
    state = await jobs.wait(job.id, DEADLINE_SECONDS)
    assert state is not None, "it was submitted"
    return state


def report(case: Case, part: str, run: Callable[[], Figures]) -> None:
    """Print the figures of one part with its peak memory; a part that fails has its error instead."""
    on_gpu = case.loaded.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        figures = run()
    except Exception as error:  # noqa: BLE001 - one part without memory must not cost the figures of the others
        figures = {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    case.peak_bytes = max(case.peak_bytes, peak)
    print(json.dumps({"part": part, "mode": MODES[case.mode], **figures, "peak_gb": peak / 1e9}), flush=True)


def predicted(case: Case) -> Figures:
    """What `nat.sizing` says that these parts take at most."""
    on_cpu, sizes = case.loaded.device.type == "cpu", case.sizes
    setup = Setup(
        "cpu" if on_cpu else "cuda",
        "float32" if on_cpu else "bfloat16",
        None if case.mode == "full" else LORA_RANK,
        load_in_4bit=case.mode == "qlora",
        max_num_seqs=max(sizes.chats),
        prefix_cache_mb=EngineLimits.prefix_cache_bytes // 2**20,
    )
    workload = Workload(
        chats=max(sizes.chats),
        chat_tokens=max(sizes.prompts) + ANSWER,
        row_tokens=max(sizes.lengths),
        step_tokens=max(sizes.tokens, GROUP * max(sizes.lengths)),
    )
    shape = ModelShape.of_config(case.config.to_dict())
    memory = predict(shape, setup, workload, free=available_bytes(case.loaded.device))
    return {"predicted_gb": memory.total / 1e9}


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much each part does."""
    parser.add_argument("--chats", type=int, nargs="+", default=[1, 16, 64, 256], help="chats at the same time")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 2048, 4096], help="tokens of a row of an update"
    )
    parser.add_argument("--tokens", type=int, default=32768, help="tokens of an update, in at least eight rows")
    parser.add_argument("--prompts", type=int, nargs="+", default=[128], help="tokens of a chat's prompt")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--no-cudnn", action="store_true", help="turn cuDNN's attention off")
    parser.add_argument("--no-graphs", action="store_true", help="turn CUDA graphs of the sampler's steps off")


def main() -> None:
    """Print a line of JSON for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_case", description=main.__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--mode", choices=MODES, default="full", help="what is trained")
    add_sizes(parser)
    options = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(not options.no_cudnn)
    sizes = Sizes(options.chats, options.lengths, options.tokens, options.prompts)
    with tempfile.TemporaryDirectory() as folder:
        case = Case(options.shape, options.device, sizes, Path(folder), options.mode, graphs=not options.no_graphs)
        for chats, prompt in product(sizes.chats, sizes.prompts) if "sampler" in options.part else ():
            report(case, "sampler", partial(sampler, case, chats, prompt))
        for length in sizes.lengths if "learner" in options.part else ():
            report(case, "learner", partial(update, case, length))
        if "epoch" in options.part:
            report(case, "epoch", partial(epoch, case))
        if set(options.part) == set(PARTS):
            figures = {"part": "memory", "mode": MODES[case.mode], **predicted(case), "peak_gb": case.peak_bytes / 1e9}
            print(json.dumps(figures), flush=True)
        case.jobs.close()


if __name__ == "__main__":
    main()
