"""Before the first rollout: the memory that a run will take here, predicted by `nat.sizing`, and how fast it is."""

import logging
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from nat.backend.algorithms.registry import Resolved
from nat.backend.devices import chosen_device
from nat.backend.memory import available_bytes, free_bytes, total_bytes
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.speed import measured_speed
from nat.backend.training.learner import Learner, resolved_for
from nat.backend.training.reference import Reference
from nat.errors import ModelNotSupported
from nat.sizing.forecast import ForecastRequest, TrainingForecast, bytes_text, fitting_text
from nat.sizing.memory import DEFAULT_RANK, DType, PredictedMemory, Setup, Workload, longest_row, predict
from nat.sizing.remedies import remedies
from nat.sizing.rules import usual_optimizer_steps
from nat.sizing.shape import ModelShape
from nat.sizing.shared_card import vllm_share
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingConfig

logger = logging.getLogger(__name__)

_HOST = torch.device("cpu")

_LEAST = Workload(chats=1, chat_tokens=64, row_tokens=64, step_tokens=64)
"""What every run samples and trains at least."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
"""What reading a configuration with missing or wrong sizes raises."""


class Forecaster:
    """Answers what a planned run would take on this backend."""

    def __init__(
        self, options: ServeOptions, engine: SamplingEngine, learner: Learner | None = None, *, sampler: str = ""
    ) -> None:
        """Without a learner, one is made when first needed; a model must not have two.

        `sampler` says what samples where, if this process does not.
        """
        self._options = options
        self._sampler = sampler
        self._engine = engine
        self._learner = learner

    @property
    def loaded(self) -> LoadedModel:
        return self._engine.loaded

    def resolve(self, config: TrainingConfig) -> Resolved:
        """The settings that an update of this model will use.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it.

        """
        return resolved_for(config, self.loaded) if self._learner is None else self._learner.resolved(config)

    def forecast(self, request: ForecastRequest) -> TrainingForecast:
        """Predict and, if the request asks for it and the memory suffices, measure; takes `probe_seconds` and a bit."""
        resolved, loaded = self.resolve(request.config), self._engine.loaded
        context = loaded.max_seq_length
        workload = request.workload.with_rows(min(request.workload.row_tokens, context))
        setup = _setup(self._options, loaded, resolved)
        steps = resolved.config.steps_per_batch or usual_optimizer_steps(request.num_rollouts)
        assert resolved.config.learning_rate is not None, "filled in for the model"
        room, host = available_bytes(loaded.device), None if setup.cpu else available_bytes(_HOST)
        other = replace(setup, lora_rank=DEFAULT_RANK if setup.full else None, load_in_4bit=False)
        ways = setup, other
        shape, place = _shape(loaded), str(chosen_device(self._options.device))
        found = TrainingForecast(
            device=setup.device,
            dtype=setup.dtype,
            num_parameters=loaded.num_parameters,
            learning_rate=resolved.config.learning_rate,
            optimizer_steps=steps * resolved.config.num_iterations,
            memory=[] if shape is None else [predicted_memory(shape, way, workload, room, context) for way in ways],
            available=room,
            capacity=total_bytes(loaded.device),
            host_available=host,
            place=place,
            places=(f"trains on {place}; {self._sampler or f'samples on {place}'}",),
        )
        if shape is not None and not found.fits:
            return found.model_copy(update={"fitting": remedies(shape, setup, workload, room=room, host=host)})
        if not request.probe_seconds:
            return found
        learner = self._engine.run_exclusive(self._one_learner).result()
        speed = measured_speed(self._engine, learner, workload, resolved, seconds=request.probe_seconds)
        return found.model_copy(update={"speed": speed})

    def _one_learner(self) -> Learner:
        if self._learner is None:
            self._learner = Learner(self._engine.loaded, Reference(self._engine.loaded, _refused))
        return self._learner


def check_capacity(options: ServeOptions) -> None:
    """Refuse a model that the machine cannot hold, before the system ends this process while it loads.

    Raises:
        ModelNotSupported: with the bytes, and settings with which it fits.

    """
    device = chosen_device(options.device)
    capacity = total_bytes(device)
    try:
        shape = ModelShape.of_folder(options.model)
    except UNREADABLE:  # loading the model will say what is wrong with it
        return
    dtype = "bfloat16" if options.dtype == "auto" else options.dtype
    least = _least(options, device, dtype)
    host = None if least.cpu else total_bytes(_HOST)
    needed = predict(shape, least, _LEAST)
    rooms = ((needed.total, capacity, "this machine" if least.cpu else "this GPU"), (needed.host, host, "its host"))
    for count, room, name in rooms:
        if room is not None and count > room:
            raise ModelNotSupported(
                f"{options.model} needs {bytes_text(count)} at least ({shape.num_parameters / 1e9:.1f} billion "
                f"weights, {least.title}, {least.dtype}); {name} has {bytes_text(room)}",
                hint=fitting_text(remedies(shape, least, _LEAST, room=capacity, host=host)),
            )


def share_for_vllm(options: ServeOptions, loaded: LoadedModel) -> float | None:
    """Share of the loaded learner's card that vLLM may take there; None on a CPU, or if the sizes are not known."""
    total, free = total_bytes(loaded.device), free_bytes(loaded.device)
    if loaded.device.type == "cpu" or total is None or free is None or (shape := _shape(loaded)) is None:
        return None
    setup, sleeps = _least(options, loaded.device, _dtype(loaded)), options.vllm_sleep != "never"
    return vllm_share(shape, setup, context=loaded.max_seq_length, sleeps=sleeps, total=total, free=free)


def _of_options(options: ServeOptions, device: torch.device, dtype: DType) -> Setup:
    return Setup(
        device="cpu" if device.type == "cpu" else "cuda",
        dtype=dtype,
        lora_rank=options.lora_rank,
        load_in_4bit=options.load_in_4bit,
        embedded=options.engine == "embedded",
        max_num_seqs=options.max_num_seqs,
        kv_cache_mb=options.kv_cache_mb,
        prefix_cache_mb=options.prefix_cache_mb,
    )


def _least(options: ServeOptions, device: torch.device, dtype: DType) -> Setup:
    """The setup that takes least; a backend that only serves trains nothing."""
    least = replace(_of_options(options, device, dtype), gradient_checkpointing=True)
    return replace(least, lora_rank=1) if options.output_dir is None else least


def _setup(options: ServeOptions, loaded: LoadedModel, resolved: Resolved) -> Setup:
    config = resolved.config
    return replace(
        _of_options(options, loaded.device, _dtype(loaded)),
        micro_batch_tokens=config.micro_batch_tokens,
        gradient_checkpointing=config.gradient_checkpointing,
        has_reference=config.beta > 0 or config.kl_penalty_coef > 0,
    )


def _dtype(loaded: LoadedModel) -> DType:
    return "bfloat16" if loaded.dtype == torch.bfloat16 else "float32"


def _shape(loaded: LoadedModel) -> ModelShape | None:
    """The sizes without adapters; None if the configuration lacks one."""
    adapters = 0 if loaded.peft is None else sum(each.numel() for each in loaded.trainable_parameters().values())
    try:
        return ModelShape.of_config(loaded.model.config.to_dict(), loaded.num_parameters - adapters)
    except UNREADABLE as error:
        logger.warning("the memory of training cannot be predicted from the model's configuration: %s", error)
        return None


def predicted_memory(
    shape: ModelShape, setup: Setup, workload: Workload, room: int | None, context: int
) -> PredictedMemory:
    """The parts at the peak, and the longest rows of a context that fit into the room."""
    longest = None if room is None else longest_row(shape, setup, workload, room=room, most=context)
    return predict(shape, setup, workload, free=room).model_copy(update={"longest_row": longest})


def _refused() -> PreTrainedModel:
    raise AssertionError("a rehearsal compares with no reference")
