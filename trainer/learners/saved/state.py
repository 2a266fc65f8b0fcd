"""The learner's state on disk, by `torch.distributed.checkpoint`: each rank writes its shards.

The files are ours (`tensors`): bytes and JSON, of which nothing is executed. Any other number of
ranks can read them. The tensors are training's own, in float32, so with the same number of ranks
training continues bit for bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save
from torch.distributed.checkpoint.storage import StorageReader

from trainer.errors import CheckpointError
from trainer.learners.saved.pickled import PickledReader
from trainer.learners.saved.tensors import METADATA, TensorReader, TensorWriter
from trainer.learners.update.moments import converted, moments_of

_WEIGHTS, _OPTIMIZER, _RNG, _COUNTERS = "weights", "optimizer", "torch_rng", "counters"
_START, _ADAPTER = "start", "adapter"
_REFUSALS = {
    _START: (
        "its run started from other weights than those of model.source, and what is frozen (the"
        " model under adapters, the reference of the KL term) is in no checkpoint: set"
        " model.source to the weights that it started from"
    ),
    _ADAPTER: (
        "its adapters were trained with another learner.lora.alpha, and scaled otherwise they are"
        " another policy: set learner.lora as it was"
    ),
}
"""Reasons why a checkpoint cannot be resumed with other values than its own."""


@dataclass(slots=True, kw_only=True)
class State:
    """State that a learner resumes from; tensors are written and read in place."""

    weights: Mapping[str, torch.nn.Parameter]
    """Those that are trained, by name."""
    optimizer: torch.optim.Optimizer
    start: torch.Tensor | None
    """Digest of the weights that training started from, where some of them stay as they are."""
    adapter: torch.Tensor | None
    """[2] alpha and rank, where adapters are trained."""
    version: int
    num_updates: int
    rank: int

    def fixed(self) -> dict[str, torch.Tensor]:
        """Return the tensors that must be the same over the whole run."""
        named = {_START: self.start, _ADAPTER: self.adapter}
        return {key: value for key, value in named.items() if value is not None}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state as tensors under flat names; the optimizer's are its own, not copies."""
        flat: dict[str, torch.Tensor] = {
            _COUNTERS: torch.tensor([self.version, self.num_updates]),
            f"{_RNG}/{self.rank}": torch.get_rng_state(),
        }
        flat |= self.fixed()
        for name, weight in self.weights.items():
            flat[f"{_WEIGHTS}/{name}"] = weight.detach()
            for key, value in self.optimizer.state.get(weight, {}).items():
                flat[f"{_OPTIMIZER}/{name}/{key}"] = value
        return flat


def begin_writing(directory: Path, state: State, group: dist.ProcessGroup) -> Callable[[], None]:
    """Copy the state and start writing it; the returned function waits for the end of the write.

    Later changes are not in the files. `group` is a gloo group that nothing else
    uses meanwhile.
    """
    started = async_save(
        state.tensors(), storage_writer=TensorWriter(directory), process_group=group
    )
    future = started.upload_completion if isinstance(started, AsyncSaveResponse) else started

    def wait() -> None:
        try:
            future.result()
        except CheckpointException as failures:
            # Holds all ranks' faults, and is no Exception: report the first fault itself.
            fault, _ = next(iter(failures.failures.values()))
            raise fault from None

    return wait


def reader(directory: Path) -> StorageReader:
    """Return the reader of a directory: in earlier versions the metadata were a pickle."""
    if (directory / METADATA).exists():
        return TensorReader(directory)
    return PickledReader(str(directory))


def read(directory: Path, state: State, group: dist.ProcessGroup) -> None:
    """Load a checkpoint of `begin_writing` into `state`, whatever number of ranks wrote it.

    Raises:
        CheckpointError: a file is missing, unreadable, or of another architecture, or the
            frozen weights are not those of the saved run, or adapters are scaled otherwise. A
            checkpoint without these two digests is accepted.
    """
    try:
        saved = reader(directory).read_metadata().state_dict_metadata
        target = _targets(state, saved)
        fixed = {key: value for key, value in state.fixed().items() if key in saved}
        if fixed:
            stored = {key: torch.zeros_like(value) for key, value in fixed.items()}
            load(stored, storage_reader=reader(directory), process_group=group)
            _refuse_others(stored, fixed)
        load(target, storage_reader=reader(directory), process_group=group)
    except (CheckpointException, OSError, RuntimeError, ValueError, KeyError, EOFError,
            pickle.UnpicklingError) as fault:  # fmt: skip
        # CheckpointException is torch's, of several ranks' faults, and no Exception.
        raise CheckpointError(f"cannot load {directory}: {fault}") from fault
    for name, weight in state.weights.items():
        stored = {
            key.rpartition("/")[2]: counted_at(value, weight, state.optimizer)
            for key, value in target.items()
            if key.startswith(f"{_OPTIMIZER}/{name}/")
        }
        state.optimizer.state[weight] = converted(stored, weight, moments_of(state.optimizer))
    state.version, state.num_updates = target[_COUNTERS].tolist()
    torch.set_rng_state(target[_rng_key(saved, state.rank)])


def counted_at(
    value: torch.Tensor, weight: torch.Tensor, optimizer: torch.optim.Optimizer
) -> torch.Tensor:
    """Return a tensor of the optimizer's state; its counter of steps where the optimizer wants it.

    A fused one counts on the device of the weight, any other in the machine's memory.
    """
    is_counter = value.dim() == 0
    return value.to(weight.device) if is_counter and optimizer.defaults.get("fused") else value


def _targets(state: State, saved: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors to read into: the weights, and the optimizer state where one is stored."""
    missing = [name for name in state.weights if f"{_WEIGHTS}/{name}" not in saved]
    strange = [
        key
        for key in saved
        if key.startswith(f"{_WEIGHTS}/") and key.partition("/")[2] not in state.weights
    ]
    if missing or strange:
        raise ValueError(f"another architecture: {(missing + strange)[0]}")
    target: dict[str, torch.Tensor] = {
        _COUNTERS: torch.zeros(2, dtype=torch.int64),
        _rng_key(saved, state.rank): torch.get_rng_state(),
    }
    for name, weight in state.weights.items():
        target[f"{_WEIGHTS}/{name}"] = weight.detach()
        if saved[f"{_WEIGHTS}/{name}"].size != weight.size():
            raise ValueError(f"another architecture: {name} has another shape")
    for key, kind in saved.items():
        section, _, name = key.partition("/")
        if section == _OPTIMIZER and isinstance(kind, TensorStorageMetadata):
            weight = state.weights[name.rpartition("/")[0]]
            target[key] = _room(kind, weight.detach())
    return target


def _room(kind: TensorStorageMetadata, weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor to read the optimizer's state into, with the rows of its weight."""
    if not kind.size:
        return torch.zeros(())
    if kind.size[:-1] != weight.shape[:-1] or kind.size[-1] > weight.shape[-1]:
        raise ValueError("another architecture: the optimizer's state has another shape")
    like = weight[..., : kind.size[-1]]
    dtype = kind.properties.dtype
    return torch.zeros_like(like, dtype=dtype, memory_format=torch.contiguous_format)


def _refuse_others(saved: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> None:
    for key, value in own.items():
        if not torch.equal(saved[key], value):
            raise ValueError(_REFUSALS[key])


def _rng_key(saved: Mapping[str, Any], rank: int) -> str:
    """Return the key of this rank's random state; that of rank 0 where fewer ranks have saved."""
    own = f"{_RNG}/{rank}"
    return own if own in saved else f"{_RNG}/0"
