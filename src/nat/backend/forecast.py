"""Before the first rollout: the memory that a run will take here, predicted by `nat.sizing`, and how fast it is."""

import logging
from dataclasses import replace
from typing import Literal

import torch
from transformers import PreTrainedModel

from nat.backend.algorithms.registry import Resolved
from nat.backend.memory import available_bytes, total_bytes
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.speed import measured_speed
from nat.backend.training.learner import Learner, Reference, resolved_for
from nat.errors import ModelNotSupported
from nat.sizing.forecast import (
    FittingSettings,
    ForecastRequest,
    PredictedMemory,
    TrainingForecast,
    bytes_text,
)
from nat.sizing.memory import DEFAULT_RANK, Setup, Workload, longest_row, predict
from nat.sizing.remedies import remedies
from nat.sizing.rules import usual_optimizer_steps
from nat.sizing.shape import ModelShape
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingConfig

logger = logging.getLogger(__name__)

_LEAST = Workload(chats=1, chat_tokens=64, row_tokens=64, step_tokens=64)
"""What every run samples and trains at least."""
_UNREADABLE = (OSError, ValueError, KeyError, ZeroDivisionError)


class Forecaster:
    """Answers what a planned run would take on this backend."""

    def __init__(self, options: ServeOptions, engine: SamplingEngine, learner: Learner | None = None) -> None:
        """Without a learner, one is made when first needed; a model must not have two."""
        self._options = options
        self._engine = engine
        self._learner = learner

    def resolve(self, config: TrainingConfig) -> Resolved:
        """The settings that an update of this model will use.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it.

        """
        return resolved_for(config, self._engine.loaded)

    def forecast(self, request: ForecastRequest) -> TrainingForecast:
        """Predict and, if the request asks for it and the memory suffices, measure; takes `probe_seconds` and a bit."""
        resolved = self.resolve(request.config)
        loaded = self._engine.loaded
        workload = request.workload.within(loaded.max_seq_length)
        room = available_bytes(loaded.device)
        setup = _setup(self._options, loaded, resolved, overlap=request.overlap)
        steps = resolved.config.steps_per_batch or usual_optimizer_steps(request.num_rollouts)
        assert resolved.config.learning_rate is not None, "filled in for the model"
        found = TrainingForecast(
            device="cuda" if loaded.device.type == "cuda" else "cpu",
            dtype=setup.dtype,
            num_parameters=loaded.num_parameters,
            learning_rate=resolved.config.learning_rate,
            optimizer_steps=steps * resolved.config.num_iterations,
            memory=[],
            available=room,
            capacity=total_bytes(loaded.device),
        )
        try:
            shape = ModelShape.of_config(loaded.model.config.to_dict(), _num_base_weights(loaded))
        except _UNREADABLE as error:
            logger.warning("the memory of training cannot be predicted: the model's configuration has no %s", error)
            shape = None
        if shape is not None:
            found = found.model_copy(update={"memory": _both(shape, setup, workload, room, loaded.max_seq_length)})
            if not found.fits and room is not None:
                fitting = tuple(
                    FittingSettings(settings=each.settings, bytes=each.bytes)
                    for each in remedies(shape, setup, workload, room=room)
                )
                found = found.model_copy(update={"fitting": fitting})
        if request.probe_seconds and found.fits:
            learner = self._engine.run_exclusive(self._one_learner).result()
            speed = measured_speed(self._engine, learner, workload, resolved, seconds=request.probe_seconds)
            found = found.model_copy(update={"speed": speed})
        return found

    def _one_learner(self) -> Learner:
        if self._learner is None:
            self._learner = Learner(self._engine.loaded, Reference(self._engine.loaded, _refused))
        return self._learner


def check_capacity(options: ServeOptions) -> None:
    """Refuse a model that the machine cannot hold, before the system ends this process while it loads.

    Raises:
        ModelNotSupported: with the bytes, and settings with which it fits.

    """
    where = _device(options.device)
    capacity = total_bytes(torch.device(where))
    try:
        shape = ModelShape.of_folder(options.model)
    except _UNREADABLE:  # loading the model will say what is wrong with it
        return
    dtype = options.dtype if options.dtype != "auto" else "bfloat16" if where == "cuda" else "float32"
    setup = replace(_of_options(options, where), dtype=dtype, gradient_checkpointing=True)
    least = setup if options.dtype != "auto" else replace(setup, dtype="bfloat16")
    if options.output_dir is None:  # it only serves
        least = replace(least, lora_rank=1)
    needed = predict(shape, least, _LEAST).total
    if capacity is None or needed <= capacity:
        return
    fitting = remedies(shape, least, _LEAST, room=capacity)
    choices = "; ".join(f"{each.settings} ({bytes_text(each.bytes)})" for each in fitting)
    raise ModelNotSupported(
        f"{options.model} needs {bytes_text(needed)} at least ({shape.num_parameters / 1e9:.1f} billion weights, "
        f"{least.title}, {least.dtype}); this {'GPU' if where == 'cuda' else 'machine'} has {bytes_text(capacity)}",
        hint=f"use one of: {choices}" if choices else "use a smaller model, or a machine with more memory",
    )


def _device(wanted: str) -> Literal["cpu", "cuda"]:
    return "cuda" if wanted.startswith("cuda") or (wanted == "auto" and torch.cuda.is_available()) else "cpu"


def _of_options(options: ServeOptions, device: Literal["cpu", "cuda"]) -> Setup:
    return Setup(
        device=device,
        dtype="float32",
        lora_rank=options.lora_rank,
        load_in_4bit=options.load_in_4bit,
        embedded=options.engine == "embedded",
        max_num_seqs=options.max_num_seqs,
        kv_cache_mb=options.kv_cache_mb,
        prefix_cache_mb=options.prefix_cache_mb,
    )


def _setup(options: ServeOptions, loaded: LoadedModel, resolved: Resolved, *, overlap: bool) -> Setup:
    config = resolved.config
    return replace(
        _of_options(options, _device(loaded.device.type)),
        dtype="bfloat16" if loaded.dtype == torch.bfloat16 else "float32",
        micro_batch_tokens=config.micro_batch_tokens,
        gradient_checkpointing=config.gradient_checkpointing,
        optimizer_bits=config.optimizer_bits,
        optimizer_offload=config.optimizer_offload,
        has_reference=config.beta > 0 or config.kl_penalty_coef > 0,
        overlap=overlap,
    )


def _num_base_weights(loaded: LoadedModel) -> int:
    adapters = 0 if loaded.peft is None else sum(each.numel() for each in loaded.trainable_parameters().values())
    return loaded.num_parameters - adapters


def _both(shape: ModelShape, setup: Setup, workload: Workload, room: int | None, context: int) -> list[PredictedMemory]:
    """The memory as configured, then that of training adapters instead of all weights, or all weights instead."""
    other = replace(setup, lora_rank=DEFAULT_RANK if setup.full else None, load_in_4bit=False)
    found = []
    for each in (setup, other):
        memory = predict(shape, each, workload, free=room)
        longest = None if room is None else longest_row(shape, each, workload, room=room, most=context)
        found.append(
            PredictedMemory(
                title=each.title,
                parts=dict(memory.parts),
                total=memory.total,
                host=memory.host,
                longest_row=longest,
            )
        )
    return found


def _refused() -> PreTrainedModel:
    raise AssertionError("a rehearsal compares with no reference")
