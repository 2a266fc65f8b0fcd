"""Fused kernels of a GPU for what lies between matrix products: norms, rotations, gated MLPs.

transformers computes an RMSNorm and a rotation in several kernels, each of which reads and writes
every activation. Liger has one kernel for each (Hsu et al. 2024, arXiv:2410.10989). What it gains
on an H100, and how close log-probs stay, is in `benchmarks/gpu/README.md`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.families.registry import experts_of, family_of

_KERNELS = "liger_kernel"
_ROTATION = "apply_rotary_pos_emb"


def use_fused_kernels(causal_lm: CausalLM, device: torch.device) -> bool:
    """Let `causal_lm` compute by fused kernels where the device has them, in place; tell whether.

    The head is left alone: the learner has its own (`scoring.py`). So are experts, which are
    grouped products already, and the partial rotations of models with linear attention, for which
    there is no kernel.
    """
    if device.type != "cuda" or importlib.util.find_spec(_KERNELS) is None:
        return False
    module = import_module(type(causal_lm).__module__)
    before = dict(vars(module))
    apply = import_module(f"{_KERNELS}.transformers.monkey_patch").MODEL_TYPE_TO_APPLY_LIGER_FN
    config = causal_lm.config
    apply[config.model_type](
        model=causal_lm,
        rms_norm=True,
        rope=not family_of(config).has_linear_attention,
        swiglu=experts_of(config) is None,
        cross_entropy=False,
        fused_linear_cross_entropy=False,
    )
    # It replaces the classes of transformers too, for models made later, which may be on a CPU.
    rotation = vars(module).get(_ROTATION)
    vars(module).update(before)
    if rotation is not None and not isinstance(before[_ROTATION], _ByDevice):
        setattr(module, _ROTATION, _ByDevice(plain=before[_ROTATION], fused=rotation))
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByDevice:
    """A rotation that transformers' attention finds by name, for every model of a family."""

    plain: Callable[..., Any]
    fused: Callable[..., Any]

    def __call__(self, query: torch.Tensor, *others: Any, **named: Any) -> Any:  # noqa: ANN401 - transformers' signature
        chosen = self.fused if query.is_cuda else self.plain
        return chosen(query, *others, **named)
