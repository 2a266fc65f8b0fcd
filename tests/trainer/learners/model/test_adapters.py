"""Adapters: they alone learn, and three ways of using them give the same policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch
from trainer.errors import CheckpointError, SpecError
from trainer.learners.model.models import LearnerOptions, logprobs
from trainer.learners.packing.packing import pack_single
from trainer.learners.rank import LearnerRank

IDS = random_ids(40, seed=3)


def rank(**learner: object) -> LearnerRank:
    settings = {"lora": {"rank": 4, "alpha": 8}} | learner
    return LearnerRank(
        tiny_model(),
        LearnerOptions(
            optimizer=OptimizerSpec(lr=1e-2), learner=LearnerSpec.model_validate(settings)
        ),
    )


def test_a_fresh_adapter_leaves_the_policy_as_it_is() -> None:
    torch.testing.assert_close(
        rank().logprobs(IDS), reference_logprobs(tiny_model(), IDS), atol=1e-5, rtol=0
    )


def test_only_adapters_are_trained_and_counted_apart() -> None:
    learner = rank()
    before = {name: each.detach().clone() for name, each in learner._models.parameters.items()}
    learner.step(batch())
    learner.step(batch())
    changed = {
        name
        for name, each in learner._models.parameters.items()
        if not torch.equal(each.full_tensor(), before[name].full_tensor())
    }
    assert changed == set(learner._models.trained)
    assert all(".lora_" in name for name in changed)
    assert len(changed) == 2 * 7 * 2
    assert learner.num_parameters == sum(each.numel() for each in tiny_model().parameters())


def test_rank_alpha_and_targets_are_those_of_the_spec(tmp_path: Path) -> None:
    learner = rank(lora={"rank": 2, "alpha": 6, "target_modules": ["q_proj", "up_proj"]})
    learner.step(batch())
    learner.write_adapter(tmp_path)
    factors = load_file(tmp_path / "adapter_model.safetensors")
    assert {name.split(".")[-3] for name in factors} == {"q_proj", "up_proj"}
    assert {len(t) for name, t in factors.items() if "lora_A" in name} == {2}
    config = (tmp_path / "adapter_config.json").read_text()
    assert '"lora_alpha": 6' in config


def test_peft_loads_the_adapter_and_computes_what_the_learner_does(tmp_path: Path) -> None:
    learner = rank()
    for _ in range(3):
        learner.step(batch())
    assert learner.write_adapter(tmp_path).version == 3
    expected = learner.logprobs(IDS)
    assert (expected - reference_logprobs(tiny_model(), IDS)).abs().max() > 0.05
    adapted = PeftModel.from_pretrained(tiny_model(), str(tmp_path))
    torch.testing.assert_close(reference_logprobs(adapted, IDS), expected, atol=1e-4, rtol=0)


def test_the_merged_export_is_the_same_policy_and_so_is_what_engines_get(tmp_path: Path) -> None:
    learner = rank()
    for _ in range(3):
        learner.step(batch())
    learner.save(tmp_path)
    expected = learner.logprobs(IDS)
    merged = Qwen3ForCausalLM.from_pretrained(tmp_path / "policy")
    torch.testing.assert_close(reference_logprobs(merged, IDS), expected, atol=1e-4, rtol=0)
    weights = learner.weights()
    assert weights.keys() == tiny_model().state_dict().keys()
    served = tiny_model()
    served.load_state_dict(weights)
    torch.testing.assert_close(reference_logprobs(served, IDS), expected, atol=1e-4, rtol=0)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_after_load_adapters_go_on_bit_for_bit(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    learner.save(tmp_path)
    learner.step(batch())
    resumed = rank()
    resumed.load(tmp_path)
    resumed.step(batch())
    expected = learner.weights()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.weights().items())


def test_in_bfloat16_the_frozen_weights_take_half_and_the_adapters_learn_in_float32() -> None:
    learner = rank(policy_dtype="bfloat16")
    metrics = learner.step(batch())
    assert metrics["policy/grad_norm"] > 0.0
    kinds = {name: each.dtype for name, each in learner._models.parameters.items()}
    assert {kind for name, kind in kinds.items() if ".lora_" in name} == {torch.float32}
    assert {kind for name, kind in kinds.items() if ".lora_" not in name} == {torch.bfloat16}


def test_with_adapters_off_the_model_is_its_own_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainer.algo.loss.objective.needs_reference", lambda _: True)
    learner = rank()
    micro = pack_single(IDS, device=torch.device("cpu"))
    for _ in range(3):
        learner.step(batch())
    found = learner._models.logprobs_of("start", micro)
    torch.testing.assert_close(found, reference_logprobs(tiny_model(), IDS), atol=1e-5, rtol=0)
    now = logprobs(learner._models.policy, micro)
    assert (now - found).abs().max() > 0.05
    assert learner._models.reference is None


def test_without_adapters_there_is_none_to_write(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"learner\.lora"):
        LearnerRank(tiny_model()).write_adapter(tmp_path)


def test_adapters_are_not_loaded_onto_another_model(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    learner.save(tmp_path)
    options = LearnerOptions(learner=LearnerSpec.model_validate({"lora": {"rank": 4, "alpha": 8}}))
    other = LearnerRank(tiny_model(seed=1), options)
    before = other.logprobs(IDS)
    with pytest.raises(CheckpointError, match=r"model\.source"):
        other.load(tmp_path)
    assert other.version == 0
    assert torch.equal(other.logprobs(IDS), before)


def test_the_model_under_adapters_is_the_same_one_in_another_precision(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    learner.save(tmp_path)
    rounded = rank(policy_dtype="bfloat16")
    rounded.load(tmp_path)
    torch.testing.assert_close(rounded.logprobs(IDS), learner.logprobs(IDS), atol=0.2, rtol=0)


def test_a_checkpoint_that_does_not_say_what_it_started_from_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = rank()
    learner.step(batch())
    with monkeypatch.context() as patch:
        patch.setattr(learner, "_models", dataclasses.replace(learner._models, start=None))
        learner.save(tmp_path)
    resumed = rank()
    resumed.load(tmp_path)
    assert torch.equal(resumed.logprobs(IDS), learner.logprobs(IDS))


def test_adapters_are_not_loaded_under_another_scale(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    learner.save(tmp_path)
    other = rank(lora={"rank": 4, "alpha": 16})
    before = other.logprobs(IDS)
    with pytest.raises(CheckpointError, match=r"learner\.lora\.alpha"):
        other.load(tmp_path)
    assert torch.equal(other.logprobs(IDS), before)
