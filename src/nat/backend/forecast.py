"""Before a run: whether the model and its training fit here, by the arithmetic of `nat.sizing`."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from nat.backend.algorithms.registry import Resolved
from nat.backend.memory import available_bytes, chosen_device, free_bytes, total_bytes
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.training.learner import resolved_for
from nat.errors import ModelNotSupported
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import USUAL_ROW, DType, Setup, bytes_text, fitting_text, memory_of, ways_of
from nat.sizing.rules import usual_optimizer_steps
from nat.sizing.shape import UNREADABLE, ModelShape
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingConfig

logger = logging.getLogger(__name__)

_WIDE, _STATE = 4, 8
"""Bytes of a float32, and of AdamW's two moments of a weight; one in fewer bits has a float32 beside them."""
_MOST_SHARE = 0.9
"""Share that vLLM takes of a card that is its own."""


class Forecaster:
    """Answers what a planned run would take on this backend."""

    def __init__(
        self,
        options: ServeOptions,
        engine: SamplingEngine,
        resolve: Callable[[TrainingConfig], Resolved] | None = None,
        *,
        sampler: str = "",
    ) -> None:
        """`resolve` is the learner's, if there is one; `sampler` says what samples where, if this process does not."""
        self._options = options
        self._sampler = sampler
        self._engine = engine
        self.resolve = resolve or partial(resolved_for, policy=engine.loaded)
        """Gives the settings that an update of this model will use."""

    @property
    def loaded(self) -> LoadedModel:
        return self._engine.loaded

    def forecast(self, request: ForecastRequest) -> TrainingForecast:
        """The settings of an update, and its memory."""
        config, loaded = self.resolve(request.config).config, self.loaded
        assert config.learning_rate is not None, "filled in for the model"
        steps = (config.steps_per_batch or usual_optimizer_steps(request.num_rollouts)) * config.num_iterations
        setup = replace(
            _setup(self._options, loaded.device, _dtype(loaded)),
            trains=True,
            chats=min(request.chats, self._options.max_num_seqs),
            row_tokens=min(loaded.max_seq_length, USUAL_ROW),
            steps=steps,
            micro_batch_tokens=config.micro_batch_tokens,
            gradient_checkpointing=config.gradient_checkpointing,
            has_reference=config.beta > 0 or config.kl_penalty_coef > 0,
        )
        shape, free, place = _shape(loaded), available_bytes(loaded.device), str(chosen_device(self._options.device))
        trained = loaded.trainable_parameters().values()
        saved = sum(each.nbytes for each in trained)
        whole = saved + sum(each.numel() * (_STATE + _WIDE * (each.element_size() < _WIDE)) for each in trained)
        return TrainingForecast(
            device=setup.device,
            dtype=setup.dtype,
            num_parameters=loaded.num_parameters,
            learning_rate=config.learning_rate,
            optimizer_steps=steps,
            row_tokens=setup.row_tokens,
            chats=setup.chats,
            memory=[] if shape is None else ways_of(shape, setup, free=free),
            available=free,
            checkpoint=whole,
            disk=whole + saved * self._options.keep_last + sum(each.nbytes for each in loaded.model.parameters()),
            place=f"trains on {place}; {self._sampler or f'samples on {place}'}",
        )


def check_capacity(options: ServeOptions) -> None:
    """Refuse a model that the machine cannot hold, before the system ends this process while it loads."""
    device = chosen_device(options.device)
    capacity = total_bytes(device)
    try:
        shape = ModelShape.of_folder(options.model)
    except UNREADABLE:  # loading the model will say what is wrong with it
        return
    usual = _setup(options, device, "bfloat16" if options.dtype == "auto" else options.dtype)
    least = replace(usual, chats=1, row_tokens=64, steps=1, gradient_checkpointing=True)
    needed = memory_of(shape, least)
    if capacity is not None and needed.total > capacity:
        where = "this machine" if device.type == "cpu" else "this GPU"
        raise ModelNotSupported(
            f"{options.model} needs {bytes_text(needed.total)} at least ({shape.num_parameters / 1e9:.1f} billion "
            f"weights, {least.title}); {where} has {bytes_text(capacity)}",
            hint=fitting_text(ways_of(shape, least, free=capacity), capacity),
        )


def share_for_vllm(options: ServeOptions, loaded: LoadedModel) -> float | None:
    """Share of the loaded learner's card that vLLM may take there; None on a CPU, or if the sizes are not known."""
    total, free = total_bytes(loaded.device), free_bytes(loaded.device)
    if loaded.device.type == "cpu" or total is None or free is None or (shape := _shape(loaded)) is None:
        return None
    row = min(loaded.max_seq_length, USUAL_ROW)
    needed = memory_of(shape, replace(_setup(options, loaded.device, _dtype(loaded)), row_tokens=row), free=total)
    return min(_MOST_SHARE, max(0, int(100 * min(total - needed.total, free) / total) / 100))


def _setup(options: ServeOptions, device: torch.device, dtype: DType) -> Setup:
    return Setup(
        device="cpu" if device.type == "cpu" else "cuda",
        dtype=dtype,
        lora_rank=options.lora_rank,
        load_in_4bit=options.load_in_4bit,
        embedded=options.engine == "embedded",
        trains=options.output_dir is not None,
    )


def _dtype(loaded: LoadedModel) -> DType:
    return "bfloat16" if loaded.dtype == torch.bfloat16 else "float32"


def _shape(loaded: LoadedModel) -> ModelShape | None:
    adapters = 0 if loaded.peft is None else sum(each.numel() for each in loaded.trainable_parameters().values())
    try:
        return ModelShape.of_config(loaded.model.config.to_dict(), loaded.num_parameters - adapters)
    except UNREADABLE as error:
        logger.warning("the memory of training cannot be predicted from the model's configuration: %s", error)
        return None
