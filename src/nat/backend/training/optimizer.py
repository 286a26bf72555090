"""AdamW on fp32 weights, whatever precision the model runs in, and the schedule of its learning rate.

A parameter in bf16 gets an fp32 master copy, which AdamW updates and which is then copied back. Gradients are summed in
fp32 as each micro-batch delivers them, because a sum in bf16 would depend on how the batch was split.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nat.wire.training import TrainingConfig

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")

DECAYED = 0.1
"""Share of the learning rate that is left after its decay; at zero the weights would not change, which fails a job."""


def learning_rate_at(config: TrainingConfig, step: int) -> float:
    """Give the learning rate after `step` steps: it rises from zero over the warmup, and falls to a tenth, linearly.

    The decay counts from the first step, as the warmup does. With both, the peak is a little below `learning_rate`.
    """
    warmup = min(1.0, (step + 1) / max(1, config.warmup_steps))
    decay = 1.0 if config.decay_steps is None else 1 - (1 - DECAYED) * min(1.0, step / config.decay_steps)
    return config.learning_rate * warmup * decay


@dataclass(frozen=True)
class Snapshot:
    """Weights and optimizer state at one moment, in host memory."""

    weights: dict[str, Tensor]
    state: dict[str, Tensor]


class Change(NamedTuple):
    """What an optimizer step changed."""

    norm: float
    """Norm of the change of the weights in the model's precision."""
    size: float
    """Norm of the weights before the step."""
    moved: bool
    """True if a master copy changed; small steps add up there before the model's precision shows them."""


class MasterAdamW:
    """torch's AdamW over named parameters, with a state that is a flat dict of tensors."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._masters = {name: _master(parameter) for name, parameter in self._parameters.items()}
        device = next(iter(self._masters.values())).device
        self._adamw = torch.optim.AdamW(self._masters.values(), fused=device.type in {"cpu", "cuda"})

    def configure(self, config: TrainingConfig) -> None:
        """Set the coefficients of a job and keep the moments."""
        for group in self._adamw.param_groups:
            group["betas"] = (config.adam_beta1, config.adam_beta2)
            group["eps"] = config.adam_epsilon
            group["weight_decay"] = config.weight_decay

    def zero_grad(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to `max_norm`; gives its norm before clipping (0 if there is no gradient)."""
        return float(nn.utils.clip_grad_norm_(self._masters.values(), max_norm))

    def step(self, learning_rate: float) -> Change:
        """Update the weights."""
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        before = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        marks = self._checksums()
        self._adamw.step()
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if self._masters[name] is not parameter:
                    parameter.copy_(self._masters[name])
            change = _norm([parameter.float() - before[name].float() for name, parameter in self._parameters.items()])
            return Change(change, _norm(list(before.values())), moved=change != 0 or self._checksums() != marks)

    def _checksums(self) -> list[int]:
        """Checksums of the fp32 masters, which show without a copy whether a step changed one."""
        masters = [self._masters[name] for name, p in self._parameters.items() if self._masters[name] is not p]
        return [int(master.detach().view(torch.int32).sum(dtype=torch.int64)) for master in masters]

    def weights(self) -> dict[str, Tensor]:
        """The trained weights in the model's precision, by name."""
        return {name: parameter.detach() for name, parameter in self._parameters.items()}

    def state(self) -> dict[str, Tensor]:
        """Moments and fp32 masters, by `<kind>.<parameter name>`."""
        state = {}
        for name, master in self._masters.items():
            moments = self._adamw.state.get(master, {})
            state.update({f"{kind}.{name}": moments[kind] for kind in _MOMENTS if kind in moments})
            if master is not self._parameters[name]:
                state[f"master.{name}"] = master.detach()
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load a result of `state()` after loading the weights of the same step."""
        with torch.no_grad():
            for name, master in self._masters.items():
                if master is not self._parameters[name]:
                    master.copy_(state.get(f"master.{name}", self._parameters[name]))
                moments = {kind: state[f"{kind}.{name}"] for kind in _MOMENTS if f"{kind}.{name}" in state}
                self._adamw.state.pop(master, None)
                if moments:
                    self._adamw.state[master] = {kind: t.to(master.device, copy=True) for kind, t in moments.items()}

    def snapshot(self) -> Snapshot:
        return Snapshot(_to_host(self.weights()), _to_host(self.state()))

    def restore(self, snapshot: Snapshot) -> None:
        with torch.no_grad():
            for name, weight in snapshot.weights.items():
                self._parameters[name].copy_(weight)
        self.load(snapshot.state)
        self.zero_grad()


def _master(parameter: nn.Parameter) -> Tensor:
    if torch.finfo(parameter.dtype).bits >= torch.finfo(torch.float32).bits:
        return parameter
    master = parameter.detach().float().requires_grad_()

    def collect(delivered: Tensor) -> None:
        assert delivered.grad is not None
        gradient = delivered.grad.float()
        master.grad = gradient if master.grad is None else master.grad + gradient
        delivered.grad = None

    parameter.register_post_accumulate_grad_hook(collect)  # type: ignore[no-untyped-call]  # torch has no type for it
    return master


def _norm(tensors: list[Tensor]) -> float:
    return float(nn.utils.get_total_norm(tensors))


def _to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
