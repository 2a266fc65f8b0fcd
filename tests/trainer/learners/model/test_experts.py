"""Experts in the learner: the router's precision, its load, and the names in files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hillclimb.protocol.rundir import POLICY
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from tests.trainer.fixtures.families import family_model
from trainer.errors import ModelUnavailable, SpecError
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.families.registry import experts_of
from trainer.learners.inline import InlineLearner
from trainer.learners.model.experts import ExpertRouters
from trainer.learners.model.models import LearnerOptions, build_models
from trainer.learners.model.sharding import RankGroup, Ranks

EXPERT = "model.layers.2.mlp.experts.5.down_proj.weight"


def moe(seed: int = 0) -> CausalLM:
    return family_model("qwen3_moe", seed=seed)


def test_the_router_of_a_bfloat16_pass_computes_in_float32() -> None:
    model = moe()
    layout = experts_of(model.config)
    assert layout is not None
    ExpertRouters(model, layout)
    router = model.model.layers[0].mlp.gate.to(torch.bfloat16)
    hidden = torch.randn(50, 64, generator=torch.manual_seed(1)).to(torch.bfloat16)
    logits, weights, chosen = router(hidden)
    exact = (hidden.double() @ router.weight.double().T).softmax(-1)
    expected, places = exact.topk(2)
    assert logits.dtype == weights.dtype == torch.float32
    assert torch.equal(chosen, places)
    torch.testing.assert_close(
        weights.double(), expected / expected.sum(-1, keepdim=True), atol=1e-6, rtol=1e-6
    )


def test_adapters_of_experts_are_refused_with_what_would_do() -> None:
    learner = LearnerSpec(lora=LoraSpec(rank=4))
    with pytest.raises(SpecError, match=r"gate_proj, up_proj, down_proj.*\[q_proj, k_proj, v_proj"):
        build_models(moe(), LearnerOptions(learner=learner), Ranks(RankGroup()))


def test_a_saved_policy_has_the_names_of_published_files_and_every_expert_is_needed(
    tmp_path: Path,
) -> None:
    learner = InlineLearner(moe())
    learner.save(tmp_path)
    saved = load_file(tmp_path / POLICY / "model.safetensors")
    moe().save_pretrained(tmp_path / "plain")
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert saved.keys() == plain.keys()
    for name, tensor in plain.items():
        assert torch.equal(saved[name], tensor), name
    loaded = dict(load_policy(tmp_path / POLICY).named_parameters())
    for name, parameter in moe().named_parameters():
        assert torch.equal(loaded[name], parameter), name
    del saved[EXPERT]
    save_file(saved, tmp_path / POLICY / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelUnavailable):
        load_policy(tmp_path / POLICY)
