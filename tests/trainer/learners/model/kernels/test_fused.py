"""Fused kernels in a model: which parts get them, and that models made later do not.

The kernels need a GPU; in their place stand functions that say where they were called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.trainer.fixtures.families import TYPES, family_model
from trainer.learners.model.kernels import fused

GPU = torch.device("cuda")


class Liger:
    """Liger's functions by model type: they replace what a module of transformers has."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def apply(self, *, model: torch.nn.Module, **settings: Any) -> None:
        self.settings = settings
        module = import_module(type(model).__module__)
        norms = [name for name in vars(module) if name.endswith("RMSNorm")]
        for name in norms:
            setattr(module, name, None)
        if settings["rope"]:
            module.apply_rotary_pos_emb = lambda *_: "fused"  # type: ignore[attr-defined]
        model.model.norm.forward = lambda x: x  # type: ignore[union-attr, assignment]


@pytest.fixture
def liger(monkeypatch: pytest.MonkeyPatch) -> Liger:
    found = Liger()
    patches = ModuleType("liger_kernel.transformers.monkey_patch")
    patches.MODEL_TYPE_TO_APPLY_LIGER_FN = dict.fromkeys(TYPES, found.apply)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, patches.__name__, patches)
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda _: object())
    for model_type in TYPES:
        module = import_module(type(family_model(model_type)).__module__)
        for name, value in list(vars(module).items()):
            monkeypatch.setattr(module, name, value)
    return found


@pytest.mark.parametrize("model_type", TYPES)
def test_norms_always_rotations_and_mlps_where_there_is_a_kernel(
    liger: Liger, model_type: str
) -> None:
    model = family_model(model_type)
    assert fused.use_fused_kernels(model, GPU)
    is_hybrid, has_experts = "3_5" in model_type, "moe" in model_type
    assert liger.settings == {
        "rms_norm": True,
        "rope": not is_hybrid,
        "swiglu": not has_experts,
        "cross_entropy": False,
        "fused_linear_cross_entropy": False,
    }
    assert model.model.norm.forward("as it is") == "as it is"


@pytest.mark.parametrize("model_type", TYPES)
def test_a_model_made_later_for_a_cpu_computes_as_before(liger: Liger, model_type: str) -> None:
    ids = torch.arange(1, 20).unsqueeze(0)
    before = family_model(model_type)(input_ids=ids).logits
    for _ in range(2):
        assert fused.use_fused_kernels(family_model(model_type), GPU)
    assert torch.equal(family_model(model_type)(input_ids=ids).logits, before)
    assert liger.settings


def test_a_rotation_is_fused_where_the_queries_are(liger: Liger) -> None:
    fused.use_fused_kernels(family_model("qwen3"), GPU)
    module: Any = import_module("transformers.models.qwen3.modeling_qwen3")

    class OnGpu:
        is_cuda = True

    assert module.apply_rotary_pos_emb(OnGpu(), None, None, None) == "fused"
    assert liger.settings["rope"]


@pytest.mark.parametrize("there", [True, False])
def test_without_a_gpu_or_without_liger_a_model_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
) -> None:
    found = object() if there else None
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda _: found)
    device = torch.device("cpu") if there else GPU
    model = family_model("qwen3")
    before = model.model.norm.forward
    assert not fused.use_fused_kernels(model, device)
    assert model.model.norm.forward == before
