"""A model in shards, by torch's FSDP2: of each decoder layer, a rank holds a part of the weights and of their gradient.

A layer is gathered while it computes. Shards are in float32, in which gradients add up, and are gathered in the model's
own precision. What is outside the layers, such as embeddings and head, each rank holds whole. The first rank takes no
part: it hands out weights and collects gradients, one tensor at a time, so that no rank needs room for all of them.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from nat.backend.training.checkpointing import layers_of
from nat.backend.training.optimizer import MasterAdamW
from nat.errors import TrainingFailed
from nat.heap import return_free_pages


def shard(model: PreTrainedModel, group: distributed.ProcessGroup) -> None:
    """Keep this process's part of each decoder layer; all of the group do so at once.

    Raises:
        TrainingFailed: the model has no layers to shard.

    """
    if not (layers := layers_of(model)):
        raise TrainingFailed(f"{type(model).__name__} has no decoder layers to shard", hint="leave out `shard`")
    dtype, mesh = model.dtype, DeviceMesh.from_group(group, model.device.type)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in layers:
        # By default, a module that is in no other sharded one would keep what was gathered, also beyond new weights.
        fully_shard(layer.float(), mesh=mesh, mp_policy=policy, reshard_after_forward=True)
        assert isinstance(layer, FSDPModule), "its class was extended in place"
        layer.set_gradient_divide_factor(1.0)  # gradients are sums, as in one process
        layer.set_force_sum_reduction_for_comms(enable=True)
        layer.set_reduce_scatter_unused_params(True)  # such as an expert that no token of this rank was sent to
    return_free_pages()  # of the whole layers


@torch.no_grad()
def hand_out(weights: Iterable[Tensor]) -> None:
    """Give each rank these weights; the first rank calls it while the others `take`."""
    for weight in weights:
        distributed.broadcast(weight.detach().contiguous(), 0)


@torch.no_grad()
def take(parameters: Iterable[Tensor], dtype: torch.dtype) -> None:
    """Get weights of this precision from the first rank."""
    for parameter in parameters:
        whole = torch.empty(parameter.shape, dtype=dtype, device=parameter.device)
        distributed.broadcast(whole, 0)
        if isinstance(parameter, DTensor):
            part = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(part.to_local())
        else:
            parameter.copy_(whole)


@torch.no_grad()
def collect(names: Sequence[str], optimizer: MasterAdamW, device: torch.device) -> None:
    """Add the ranks' gradients to that of the first rank's optimizer, while they `give`; this is its device."""
    for name in names:
        [gradient] = optimizer.gradients([name])
        total = torch.zeros(gradient.shape, device=device)
        distributed.reduce(total, 0)
        gradient.add_(total.to(gradient.device))


@torch.no_grad()
def give(gradients: Iterable[Tensor]) -> None:
    """Add these gradients, or parts of them, to those of the first rank."""
    for gradient in gradients:
        distributed.reduce(_whole(gradient), 0)


def _whole(gradient: Tensor) -> Tensor:
    """The gradient, with zeros in place of other ranks' parts."""
    if not isinstance(gradient, DTensor):
        return gradient.float().contiguous()
    part, whole = gradient.to_local(), torch.zeros(gradient.shape, device=gradient.device)
    rows = -(-len(whole) // gradient.device_mesh.size())  # as FSDP2 does: each rank has so many, the last ones fewer
    begin = rows * gradient.device_mesh.get_local_rank()
    whole[begin : begin + len(part)] = part
    return whole
