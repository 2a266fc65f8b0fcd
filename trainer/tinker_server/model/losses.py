"""The protocol's losses: sums over the tokens of a datum.

Source: the documentation of Tinker's losses in the SDK 0.24.1 (`forward_backward`), with PPO as in
arXiv:1707.06347 (equation 7) and CISPO as in arXiv:2506.13585 (equations 4 and 5). Written apart
from `trainer.algo`, so that the agreement of the two says something. Legend: _N tokens of a datum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch

from trainer.tinker_server.errors import RequestRefused
from trainer.tinker_server.wire import Datum, LossInput

Inputs: TypeAlias = Mapping[str, torch.Tensor]
LossOf: TypeAlias = Callable[[torch.Tensor, Inputs, float, float], torch.Tensor]

DEFAULT_BOUNDS = (0.8, 1.2)
"""Default bounds of the ratio."""
LOW, HIGH = "clip_low_threshold", "clip_high_threshold"
TARGETS = "target_tokens"
_BY_SAMPLING = ("logprobs", "advantages")
_NEEDS = MappingProxyType(
    {
        "cross_entropy": ("weights",),
        "importance_sampling": _BY_SAMPLING,
        "ppo": _BY_SAMPLING,
        "cispo": _BY_SAMPLING,
    }
)


def _cross_entropy(now_N: torch.Tensor, inputs: Inputs, low: float, high: float) -> torch.Tensor:
    del low, high
    return -(inputs["weights"] * now_N).sum()


def _importance(now_N: torch.Tensor, inputs: Inputs, low: float, high: float) -> torch.Tensor:
    del low, high
    return -((now_N - inputs["logprobs"]).exp() * inputs["advantages"]).sum()


def _ppo(now_N: torch.Tensor, inputs: Inputs, low: float, high: float) -> torch.Tensor:
    ratio_N = (now_N - inputs["logprobs"]).exp()
    clipped_N = ratio_N.clamp(low, high)
    gains_N = torch.minimum(ratio_N * inputs["advantages"], clipped_N * inputs["advantages"])
    return -gains_N.sum()


def _cispo(now_N: torch.Tensor, inputs: Inputs, low: float, high: float) -> torch.Tensor:
    weights_N = (now_N - inputs["logprobs"]).exp().clamp(low, high).detach()
    return -(weights_N * inputs["advantages"] * now_N).sum()


LOSSES: Mapping[str, LossOf] = MappingProxyType(
    {
        "cross_entropy": _cross_entropy,
        "importance_sampling": _importance,
        "ppo": _ppo,
        "cispo": _cispo,
    }
)


def bounds_of(request: LossInput) -> tuple[float, float]:
    """Return the bounds of the ratio.

    Raises:
        RequestRefused: a setting that the loss does not have, or bounds with nothing between.
    """
    config = dict(request.loss_fn_config or {})
    low, high = config.pop(LOW, DEFAULT_BOUNDS[0]), config.pop(HIGH, DEFAULT_BOUNDS[1])
    has_bounds = request.loss_fn in ("ppo", "cispo")
    unknown = sorted(config) if has_bounds else sorted(request.loss_fn_config or {})
    if unknown:
        raise RequestRefused(f"the loss {request.loss_fn} has no setting {unknown[0]}")
    if not low < high:
        raise RequestRefused(f"{LOW} ({low:g}) must be smaller than {HIGH} ({high:g})")
    return low, high


def inputs_of(datum: Datum, loss: str) -> dict[str, torch.Tensor]:
    """Return the loss inputs of a datum: a value for each of its tokens.

    Raises:
        RequestRefused: something is missing, not needed, or of another length.
    """
    required = {TARGETS, *_NEEDS[loss]}
    tensors = datum.loss_fn_inputs
    if set(tensors) != required:
        raise RequestRefused(
            f"the loss {loss} takes {sorted(required)} of each datum, not {sorted(tensors)}"
        )
    length = len(datum.model_input.tokens)
    for name, tensor in tensors.items():
        if tensor.sparse_crow_indices is not None or len(tensor.data) != length:
            raise RequestRefused(f"{name} needs one number for each of the datum's {length} tokens")
    inputs = {name: torch.tensor(tensor.data) for name, tensor in tensors.items()}
    if not all(bool(each.isfinite().all()) for each in inputs.values()):
        raise RequestRefused("a number of a datum is NaN or infinite")
    return inputs | {TARGETS: inputs[TARGETS].long()}
