"""AdamW on fp32 weights, whatever precision the model runs in, and the schedule of its learning rate.

A parameter in bf16 gets an fp32 master copy with its first step, which AdamW updates and which is then rounded.
Gradients are summed in fp32 as each micro-batch delivers them, because a sum in bf16 would depend on how the batch was
split.

Steps go parameter by parameter, and so do the copies for an update that may have to be undone. They begin with its
first step, so the first gradient is computed without them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from nat.backend.memory import free_bytes, return_pages_if_short
from nat.wire.training import TrainingConfig

_HOST = torch.device("cpu")
_MASTER = "master"
_KINDS = "step", "exp_avg", "exp_avg_sq"
"""AdamW's state of a parameter, by torch's names."""

_PART, _GPU_PART = 2**18, 2**24
"""Weights of a part: as many as a CPU's caches hold; a GPU's parts are larger, because each starts kernels."""
_WIDE_BYTES = 4
_COPIED = 3
"""Numbers of a weight that may have to be restored: the weight and AdamW's moments."""
_MOST_COPIED = 0.5
"""Share of a GPU's free memory that copies may take; the next micro-batch needs some."""
_MOST_IN_PIECES = 2**25
"""Bytes of the parameters after whose steps freed memory is returned: the copies of a step leave holes into which those
of the next one do not fit."""

_LOST = 16
"""Bits of float32 that bfloat16 does not have."""
_BELOW = 2**_LOST - 1
_GOLDEN = -1640531527
"""2^32 over the golden ratio, as int32: the upper bits of its multiples are spread evenly."""

DECAYED = 0.1
"""Share of the learning rate that is left after its decay; at zero the weights would not change, which fails a job."""


_FULL_RATE, _FULL_WIDTH, _FULL_POWER = 1e-6, 4096, 5 / 3
_LORA_RATE_TIMES_WIDTH = 0.16


def usual_learning_rate(width: int, *, lora: bool) -> float:
    """Give the learning rate for a model of this hidden size, unless the user sets one.

    Wider models take smaller steps, since AdamW moves each weight by the same amount and their outputs sum over more of
    them. For all weights the curve passes through 1e-6 at 4096, which TRL and verl use, and the best rates that
    a study found at 64 and 128. For adapters it passes through 8e-5 at 2048, between Tinker's advice
    for reinforcement learning (4e-5) and its advice for supervision (5e-4).
    """
    return _LORA_RATE_TIMES_WIDTH / width if lora else _FULL_RATE * (_FULL_WIDTH / width) ** _FULL_POWER


def learning_rate_at(config: TrainingConfig, step: int) -> float:
    """Give the learning rate after `step` steps: it rises from zero over the warmup, and falls to a tenth, linearly.

    The decay counts from the first step, as the warmup does. With both, the peak is a little below `learning_rate`.
    """
    warmup = min(1.0, (step + 1) / max(1, config.warmup_steps))
    decay = 1.0 if config.decay_steps is None else 1 - (1 - DECAYED) * min(1.0, step / config.decay_steps)
    assert config.learning_rate is not None, "filled in by the learner"
    return config.learning_rate * warmup * decay


class Change(NamedTuple):
    """What an optimizer step changed."""

    norm: float
    """Norm of the change of the weights in the model's precision."""
    size: float
    """Norm of the weights before the step."""
    moved: bool
    """True if a master copy changed; small steps add up there before the model's precision shows them."""
    grad_norm: float | None = None
    """Norm of the gradient, if only the step has shown it."""

    @property
    def metrics(self) -> dict[str, float]:
        found = {} if self.grad_norm is None else {"grad_norm": self.grad_norm}
        return found | {"update_ratio": self.norm / self.size}


class MasterAdamW:
    """torch's AdamW over named parameters, with a state that is a flat dict of tensors."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._holders = {name: _holder(parameter) for name, parameter in self._parameters.items()}
        """What has the gradient in fp32: the parameter, or a tensor of its shape that takes no memory."""
        self._masters: dict[str, Tensor] = {}
        """Of narrower parameters that have taken a step; until then, a master is its parameter."""
        self._moments: dict[str, dict[str, Tensor]] = {}
        self._overwritten: list[dict[str, dict[str, Tensor]]] = []
        self._copies = _HOST
        self._config = TrainingConfig()

    def configure(self, config: TrainingConfig) -> None:
        """Set the coefficients of a job and keep the moments."""
        self._config = config

    def forget(self) -> None:
        """Begin anew with the weights as they are: drop the moments."""
        self._moments.clear()

    def zero_grad(self) -> None:
        for holder in self._holders.values():
            holder.grad = None

    def with_gradient(self) -> list[str]:
        """Names of the weights that have a gradient."""
        return [name for name, holder in self._holders.items() if holder.grad is not None]

    @contextmanager
    def keeping_gradient(self) -> Iterator[None]:
        """Restore the gradient that was there if the block fails."""
        kept = {name: holder.grad.clone() for name, holder in self._holders.items() if holder.grad is not None}
        try:
            yield
        except BaseException:
            for name, holder in self._holders.items():
                holder.grad = kept.get(name)
            raise

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to `max_norm`; gives its norm before clipping (0 if there is no gradient)."""
        return float(nn.utils.clip_grad_norm_(self._holders.values(), max_norm))

    @torch.no_grad()
    def step(self, learning_rate: float) -> Change:
        """Update the weights."""
        changes, in_pieces = [], 0
        if any(not overwritten for overwritten in self._overwritten):
            self._copies = self._place_of_copies()
        for name, parameter in self._parameters.items():
            changes.append(self._step(name, learning_rate))
            in_pieces += parameter.nbytes
            if in_pieces >= _MOST_IN_PIECES:
                return_pages_if_short()
                in_pieces = 0
        norm, size, moved = (torch.stack(values) for values in zip(*changes, strict=True))
        return Change(float(norm.norm()), float(size.norm()), moved=bool(moved.any()))

    @torch.no_grad()
    def replace(self, weights: Mapping[str, Tensor]) -> Change:
        """Put these weights, which another trainer made, in place of all; AdamW begins anew with them."""
        changes = []
        for name in self._parameters:
            before = self._master(name).clone()
            self._keep(name, before)
            self._put(name, weights[name])
            changes.append((_distance(self._master(name), before), _norm(before)))
        self.forget()
        norm, size = (float(torch.stack(values).norm()) for values in zip(*changes, strict=True))
        return Change(norm, size, moved=norm > 0)

    def _step(self, name: str, learning_rate: float) -> tuple[Tensor, Tensor, Tensor]:
        parameter, master = self._parameters[name], self._master(name)
        size, gradient = _norm(master), self._holders[name].grad
        if gradient is None:
            return torch.zeros_like(size), size, torch.zeros_like(size, dtype=torch.bool)
        before = master.clone()
        self._keep(name, before)
        self._adamw(name, master, gradient, learning_rate)
        moved = _distance(master, before)
        if _is_wide(parameter):
            return moved, size, moved > 0
        served = parameter.detach().clone()
        self._store(name, master)
        return _distance(parameter, served), size, moved > 0

    def _adamw(self, name: str, master: Tensor, gradient: Tensor, learning_rate: float) -> None:
        stored = self._moments.get(name) or {
            "step": master.new_zeros(()),
            "exp_avg": torch.zeros_like(master),
            "exp_avg_sq": torch.zeros_like(master),
        }
        moments = {kind: tensor.to(master.device) for kind, tensor in stored.items()}
        adamw(
            [master],
            [gradient.to(master.device)],
            [moments["exp_avg"]],
            [moments["exp_avg_sq"]],
            [],
            [moments["step"]],
            fused=master.device.type in {"cpu", "cuda"},
            amsgrad=False,
            maximize=False,
            lr=learning_rate,
            beta1=self._config.adam_beta1,
            beta2=self._config.adam_beta2,
            eps=self._config.adam_epsilon,
            weight_decay=self._config.weight_decay,
        )
        self._moments[name] = moments

    def state(self) -> dict[str, Tensor]:
        """Moments and fp32 masters, by `<kind>.<parameter name>`."""
        state = {f"{kind}.{name}": tensor for name, own in self._moments.items() for kind, tensor in own.items()}
        return state | {f"{_MASTER}.{name}": master for name, master in self._masters.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load a result of `state()` after loading the weights of the same step."""
        for name, parameter in self._parameters.items():
            kinds = (*_KINDS, _MASTER)
            own = {kind: state[f"{kind}.{name}"] for kind in kinds if f"{kind}.{name}" in state}
            self._restore(name, {_MASTER: parameter.detach(), **own})

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo the steps of the block if it fails; until the first one, this copies nothing. Drop the gradients."""
        overwritten: dict[str, dict[str, Tensor]] = {}
        self._overwritten.append(overwritten)
        try:
            yield
        except BaseException:
            for name, own in overwritten.items():
                self._restore(name, own)
            raise
        finally:
            self._overwritten.pop()
            self.zero_grad()

    @torch.no_grad()
    def shorten(self, factor: float) -> None:
        """Inside `all_or_nothing`, keep this part of the way from the weights at its start; the moments stay."""
        for name, own in self._overwritten[-1].items():
            master = self._master(name)
            self._put(name, torch.lerp(own[_MASTER].to(master), master, factor))

    def _keep(self, name: str, master: Tensor) -> None:
        missing = [overwritten for overwritten in self._overwritten if name not in overwritten]
        if missing:
            stored = self._moments.get(name, {})
            moments = {kind: self._copy(tensor) for kind, tensor in stored.items()}
            own = self._masters.get(name, self._parameters[name].detach())
            kept = master if own.dtype == master.dtype and master.device == self._copies else self._copy(own)
            for overwritten in missing:
                overwritten[name] = {**moments, _MASTER: kept}

    def _master(self, name: str) -> Tensor:
        parameter = self._parameters[name].detach()
        return self._masters.get(name, parameter if _is_wide(parameter) else parameter.float())

    def _put(self, name: str, weight: Tensor) -> None:
        parameter = self._parameters[name]
        if _is_wide(parameter) or weight.dtype == parameter.dtype:
            parameter.copy_(weight)
            self._masters.pop(name, None)
        else:
            self._store(name, weight.to(parameter.device, torch.float32, copy=True))

    def _store(self, name: str, master: Tensor) -> None:
        _round(master, self._parameters[name])
        self._masters[name] = master

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._copies, copy=True)

    def _place_of_copies(self) -> torch.device:
        device = next(iter(self._parameters.values())).device
        free = None if device == _HOST else free_bytes(device)
        copies = _COPIED * _WIDE_BYTES * sum(parameter.numel() for parameter in self._parameters.values())
        return _HOST if free is None or copies > _MOST_COPIED * free else device

    @torch.no_grad()
    def _restore(self, name: str, own: Mapping[str, Tensor]) -> None:
        self._put(name, own[_MASTER])
        self._moments.pop(name, None)
        if moments := {kind: own[kind].to(_HOST, copy=True) for kind in _KINDS if kind in own}:
            self._moments[name] = moments  # the next step decides where they stay


def _is_wide(parameter: Tensor) -> bool:
    return torch.finfo(parameter.dtype).bits >= torch.finfo(torch.float32).bits


def _holder(parameter: nn.Parameter) -> Tensor:
    if _is_wide(parameter):
        return parameter
    holder = torch.zeros((), device=parameter.device).expand(parameter.shape)

    def collect(delivered: Tensor) -> None:
        assert delivered.grad is not None
        if holder.grad is None:
            holder.grad = delivered.grad.float()
        else:
            holder.grad += delivered.grad
        delivered.grad = None

    parameter.register_post_accumulate_grad_hook(collect)  # type: ignore[no-untyped-call]  # torch has no type for it
    return holder


def _round(master: Tensor, parameter: Tensor) -> None:
    """Copy a master into a parameter of bfloat16 so that its small steps show: rounded up or down by a fixed threshold.

    The steps of RL are a fraction of the distance between two numbers in bfloat16. Rounded to the nearest, a weight
    that begins as such a number moves only after many of them, and none is seen before. With thresholds spread evenly
    over the weights, as many of them move as corresponds to the step; the threshold of a weight never changes, so
    nothing moves without a step.
    """
    if parameter.dtype != torch.bfloat16:
        parameter.copy_(master)
        return
    target, source = parameter.view(-1), master.detach().view(-1).view(torch.int32)
    most = _part(source)
    numbers = torch.arange(min(most, len(source)), dtype=torch.int32, device=source.device).mul_(_GOLDEN)
    scratch = torch.empty_like(numbers)
    for start in range(0, len(source), most):
        bits = source[start : start + most]
        offset = (start * _GOLDEN + 2**31) % 2**32 - 2**31  # as int32 holds it after an overflow
        spread = scratch[: len(bits)].copy_(numbers[: len(bits)]).add_(offset)
        spread.bitwise_right_shift_(_LOST).bitwise_and_(_BELOW).add_(bits).bitwise_and_(~_BELOW)
        target[start : start + most] = spread.view(torch.float32)


def _part(tensor: Tensor) -> int:
    return _PART if tensor.device == _HOST else _GPU_PART


def _norm(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return norm


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """Norm of the difference, which is computed in parts that a CPU's caches hold."""
    here, there = one.flatten(), other.flatten()
    wide, most = torch.promote_types(one.dtype, torch.float32), _part(one)
    scratch = torch.empty(min(most, len(here)), dtype=wide, device=one.device)
    norms = []
    for start in range(0, len(here), most):
        part = scratch[: min(most, len(here) - start)]
        norms.append(_norm(part.copy_(here[start : start + most]).sub_(there[start : start + most])))
    return _norm(torch.stack(norms))
