"""FSDP2: every parameter is sharded over the ranks, and gathered only while its layer computes.

One rank is the same code as many: a world of one has a process group of its own. Source: PyTorch
FSDP2 (`torch.distributed.fsdp.fully_shard`), after Rajbhandari et al. 2020 (ZeRO,
arXiv:1910.02054).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from trainer.errors import LearnerError
from trainer.learners.context.group import context_group
from trainer.learners.model.policy import PolicyModule
from trainer.learners.model.recompute import recomputed
from trainer.learners.recurrent.delta_net import DECAY, decays

_T = TypeVar("_T")
_WRITERS: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()
"""By the world, with which it ends."""
_WRAPPINGS = ("causal_lm.", "_checkpoint_wrapped_module.", f"{DECAY}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """This process's rank, the number of ranks, and their rendezvous."""

    rank: int = 0
    size: int = 1
    init_method: str | None = None
    """`tcp://HOST:PORT` or `file:///PATH`, the same for all ranks; a world of one needs none."""
    device: str = "cpu"
    """`cpu` (gloo) or `cuda:N` (NCCL, with gloo beside it for small things)."""
    timeout_s: float = 1800.0
    """Longest wait of one rank for the others (seconds)."""


class Ranks:
    """Communication of this rank with the others; every method is called on all ranks alike."""

    def __init__(self, world: RankGroup, *, context_size: int = 1) -> None:
        """Join the process group; in a process that is a member already, only check its rank.

        `context_size` ranks share each micro-batch.

        Raises:
            LearnerError: the ranks did not all join, or the process belongs to another world.
            SpecError: the ranks cannot be divided into groups of that size.
        """
        self.device = torch.device(world.device)
        if not dist.is_initialized():
            _join(world, self.device)
        if (dist.get_rank(), dist.get_world_size()) != (world.rank, world.size):
            raise LearnerError(
                f"this process is rank {dist.get_rank()} of {dist.get_world_size()},"
                f" not {world.rank} of {world.size}"
            )
        self.rank, self.size = world.rank, world.size
        self.mesh: DeviceMesh = init_device_mesh(self.device.type, (world.size,))
        self.context = context_group(self.device, world.size, context_size)
        """The ranks with this one's micro-batches; None where it has its own."""
        self.writers: dist.ProcessGroup = _writers()
        """A gloo group for threads that write while training communicates in the world's."""

    @property
    def context_size(self) -> int:
        """Number of ranks that share a micro-batch."""
        return 1 if self.context is None else self.context.size

    @property
    def data_ranks(self) -> tuple[int, int]:
        """This rank's number among those with other micro-batches, and how many there are."""
        return self.rank // self.context_size, self.size // self.context_size

    @property
    def reports(self) -> bool:
        """Tell whether this rank reports the figures of its micro-batches: one of each does."""
        return self.rank % self.context_size == 0

    def free_cached_memory(self) -> None:
        """Give the GPU's memory that no tensor uses back to other processes."""
        self.wait()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def wait(self) -> None:
        """Wait until this rank's device is idle: then a clock may be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def gather(self, value: _T) -> list[_T]:
        """All-gather: return every rank's `value`, in the order of the ranks."""
        if self.size == 1:
            return [value]
        values: list[_T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """All-reduce: sum `tensor` over the ranks, in place."""
        dist.all_reduce(tensor, group=self.mesh.get_group())
        return tensor


def _join(world: RankGroup, device: torch.device) -> None:
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        avoid_plans_per_shape()
        backend = "cpu:gloo,cuda:nccl"
    try:
        dist.init_process_group(
            backend,
            init_method=world.init_method if world.size > 1 else None,
            store=dist.HashStore() if world.size == 1 else None,  # type: ignore[attr-defined]
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=world.timeout_s),
        )
    except (RuntimeError, ValueError) as fault:
        raise LearnerError(f"rank {world.rank} could not join the others: {fault}") from fault


def _writers() -> dist.ProcessGroup:
    """Return this process's group of writers, made once in a world.

    A gloo group's thread wakes up a hundred times a second until the group is destroyed.
    """
    world = dist.group.WORLD
    assert world is not None
    if world not in _WRITERS:
        _WRITERS[world] = dist.new_group(backend="gloo")
    return _WRITERS[world]


def avoid_plans_per_shape() -> None:
    """Keep scaled dot products off cuDNN, which torch prefers on an H100.

    It builds a plan for every new shape and stride and keeps it for ever, and here every rollout
    has a length of its own (pytorch pull request 190388).
    """
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def shard(
    policy: PolicyModule,
    ranks: Ranks,
    *,
    dtype: torch.dtype,
    recompute: bool = False,
    keep: str = "none",
    offload: bool = False,
) -> PolicyModule:
    """Shard the policy over the ranks, in place: one group per layer, one for all else.

    `dtype` is that of forward and backward; gradients are added up in float32. `recompute` trades
    the activations of each layer, but for the results of `keep`, for a second forward pass.
    `offload` keeps the shards, their gradients and so the optimizer in the machine's memory.
    """
    precision = MixedPrecisionPolicy(
        param_dtype=None if dtype is torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    # One rank on a CPU gains nothing from resharding: its layers stay whole until the backward.
    regather = ranks.size > 1 or ranks.device.type == "cuda"
    place = CPUOffloadPolicy(pin_memory=ranks.device.type == "cuda") if offload else OffloadPolicy()
    cut = partial(fully_shard, mesh=ranks.mesh, mp_policy=precision, offload_policy=place)
    exact = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    for decay in decays(policy):
        # Groups of their own: a group has one precision, and these few values keep theirs.
        fully_shard(
            decay,
            mesh=ranks.mesh,
            mp_policy=exact,
            offload_policy=place,
            reshard_after_forward=False,
        )
    layers = policy.causal_lm.model.layers
    for index, layer in enumerate(layers):
        if recompute:
            layers[index] = recomputed(layer, keep)
        cut(layers[index], reshard_after_forward=regather)
    cut(policy, reshard_after_forward=False)
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            # The loss weights are shares of the whole mini-batch: gradients add up, no mean.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return policy


def reshard(policy: PolicyModule) -> None:
    """Free gathered weights that no backward pass will free.

    Apart from their memory there is a hazard: the next forward pass would compute with them, even
    if other shards have been loaded since.
    """
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def named_parameters(policy: PolicyModule) -> dict[str, torch.nn.Parameter]:
    """Parameters under the names they had before wrapping; tied ones once."""
    return {plain_name(name): parameter for name, parameter in policy.named_parameters()}


def plain_name(name: str) -> str:
    """Return `name` as transformers has it."""
    for wrapping in _WRAPPINGS:
        name = name.replace(wrapping, "")
    return name
