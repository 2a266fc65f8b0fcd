"""The delta rule over the runs of a packed stream: by kernels on a GPU, in plain torch elsewhere.

Legend: N tokens of the stream, M of the runs of one pass, H value heads, V size of a value head.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import fields

import torch

from trainer.errors import SpecError
from trainer.inputs.model.families.delta_rule import DeltaInputs, delta_rule
from trainer.learners.recurrent.layout import Bucket, RecurrentLayout, Runs

_KERNELS = "fla"
Rule = Callable[
    [DeltaInputs, Runs, torch.Tensor | None],
    tuple[torch.Tensor, torch.Tensor],
]


def why_no_kernels(device: torch.device) -> str | None:
    """Return why linear attention is not computed on a device; None where it is."""
    if device.type != "cuda" or importlib.util.find_spec(_KERNELS) is not None:
        return None
    return (
        "models with linear attention need the package flash-linear-attention on a GPU, where plain"
        " torch is many times slower: install the packages of requirements/trainer-gpu.txt"
    )


def check_kernels(device: torch.device) -> None:
    """Check that linear attention can be computed on a device.

    Raises:
        SpecError: the kernels for GPUs are not installed.
    """
    if why := why_no_kernels(device):
        raise SpecError(why)


def mixed(inputs: DeltaInputs, layout: RecurrentLayout, apply: Rule | None = None) -> torch.Tensor:
    """Apply the rule to the stream: the prompts, then the branches from the prompts' states.

    `apply`: one of the two below; None: the one for the device.
    """
    if apply is None:
        apply = by_kernels if inputs.key.device.type == "cuda" else in_plain_torch
    output, states = apply(inputs, layout.prompts, None)
    if layout.branches is not None:
        assert layout.branches.origins_R is not None
        begin = states.index_select(0, layout.branches.origins_R)
        output = torch.cat((output, apply(inputs, layout.branches, begin)[0]))
    return output.index_select(0, layout.order_N)


def _tokens_of(inputs: DeltaInputs, tokens_M: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        each.name: getattr(inputs, each.name).index_select(0, tokens_M) for each in fields(inputs)
    }


def in_plain_torch(
    inputs: DeltaInputs, runs: Runs, states: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule in plain torch; return outputs [M, H, V] and the states after each run."""
    tokens = _tokens_of(inputs, runs.tokens_M)
    outputs, lasts = [], []
    for bucket in runs.buckets:
        rows = {name: _rows(x[bucket.tokens], bucket) for name, x in tokens.items()}
        begin = None if states is None else states[bucket.first : bucket.first + bucket.num]
        output, last = delta_rule(DeltaInputs(**rows), begin)
        flat = output.flatten(0, 1)
        outputs.append(flat if bucket.places is None else flat.index_select(0, bucket.places))
        lasts.append(last)
    return torch.cat(outputs), torch.cat(lasts)


def _rows(x_M: torch.Tensor, bucket: Bucket) -> torch.Tensor:
    """Return [runs, longest, ...], padded with zeros, which leave a state as it is."""
    if bucket.places is not None:
        empty = x_M.new_zeros(bucket.num * bucket.longest, *x_M.shape[1:])
        x_M = empty.index_copy(0, bucket.places, x_M)
    return x_M.view(bucket.num, bucket.longest, *x_M.shape[1:])


def by_kernels(
    inputs: DeltaInputs, runs: Runs, states: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule by the kernels for GPUs, which need no padding."""
    from fla.ops.gated_delta_rule import (  # type: ignore[import-not-found]  # noqa: PLC0415 - only on GPUs
        chunk_gated_delta_rule,
    )

    tokens = {name: x.unsqueeze(0) for name, x in _tokens_of(inputs, runs.tokens_M).items()}
    output, lasts = chunk_gated_delta_rule(
        tokens["query"],
        tokens["key"],
        tokens["value"],
        g=tokens["decay"],
        beta=tokens["beta"],
        initial_state=states,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=runs.offsets,
    )
    return output[0], lasts
