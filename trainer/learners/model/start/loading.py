"""Reads a policy from its files: each rank the rows that it holds, and no rank the whole."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from trainer.inputs.model.weights import WeightFiles

BASE = ".base_layer."
"""Part of the name of a weight beside an adapter."""


def fill(
    module: torch.nn.Module,
    parameters: dict[str, torch.nn.Parameter],
    files: WeightFiles,
    *,
    ranks: tuple[int, int],
    device: torch.device,
) -> None:
    """Give a sharded module without storage its memory on `device`, and read its rows into it.

    `parameters` are the module's under the names of the files; adapters, which have storage, are
    left alone. `ranks` are (rank, number of ranks); FSDP2 gives each as many rows as `torch.chunk`.
    """
    empty = [name for name, each in parameters.items() if each.is_meta]
    module._apply(  # type: ignore[no-untyped-call]  # noqa: SLF001 - `to_empty` would overwrite the rotary frequencies too
        lambda each: torch.empty_like(each, device=device) if each.is_meta else each
    )
    rank, num_ranks = ranks
    with torch.no_grad():
        for name in empty:
            shard = parameters[name]
            rows = shard.to_local() if isinstance(shard, DTensor) else shard
            start = rank * -(-parameters[name].shape[0] // num_ranks)
            if len(rows):
                rows.copy_(files.rows(name.replace(BASE, "."), start, start + len(rows)))
