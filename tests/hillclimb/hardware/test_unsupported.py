"""Models that cannot be trained are refused by their names, with a reason and what would do."""

from __future__ import annotations

import pytest

from hillclimb.hardware.memory.routes import routes_bytes
from hillclimb.hardware.model.experts import ATTENTION
from hillclimb.hardware.model.published import KNOWN, shape_of
from hillclimb.hardware.model.unsupported import why_unsupported
from hillclimb.hardware.plan import HardwarePlan, hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.run import RunSpec

COMMIT = "0" * 40


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        ("Qwen/Qwen2-57B-A14B-Instruct", "mixture of experts", "Qwen3-30B-A3B"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", "mixture of experts", "Tinker"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "linear attention", "dense model"),
        ("Qwen/Qwen3.8-27B", "linear attention", "Qwen3.5 (4B to 27B)"),
        ("Qwen/Qwen3-VL-8B-Instruct", "images", "text model"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "images", "text model"),
        ("Qwen/Qwen3-8B-AWQ", "quantised", "made from"),
        ("Qwen/Qwen3-32B-FP8", "quantised", "made from"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "quantised", "made from"),
        ("moonshotai/Kimi-K2-Instruct", "mixture of experts", "Tinker"),
        ("openai/gpt-oss-20b", "mixture of experts", "Tinker"),
        ("deepseek-ai/DeepSeek-V3", "mixture of experts", "dense model"),
        ("google/gemma-3-4b-it", "family is not supported", "Qwen2.5 or Llama 3"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "family is not supported", "Llama 3"),
        ("meta-llama/Llama-4-Scout-17B-16E", "family is not supported", "Llama 3"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "images", "text model"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(name: str, why: str, remedy: str) -> None:
    sentence = why_unsupported(f"hf:{name}@{COMMIT}")
    assert sentence is not None
    reason, _, rest = sentence.partition(" Remedy: ")
    assert name in reason
    assert why in reason
    assert remedy in rest


def test_what_is_trained_and_what_nobody_knows_is_let_through() -> None:
    names = [f"Qwen/{name}" for name in KNOWN if name.startswith("Qwen")]
    names += [f"meta-llama/{name}-Instruct" for name in KNOWN if name.startswith("Llama")]
    names += ["deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "somebody/agent-8b", "Qwen/QwQ-32B"]
    names += ["Qwen/Qwen3.5-9B-Base", "Qwen/Qwen3.5-397B-A17B"]
    names += ["Qwen/Qwen3-Coder-30B-A3B-Instruct", "somebody/Qwen3-30B-A3B-tuned"]
    assert [name for name in names if why_unsupported(f"hf:{name}@{COMMIT}")] == []
    assert why_unsupported("builtin:tiny-qwen3-a") is None
    assert why_unsupported("s3://bucket/Qwen3-30B-A3B") is None


def test_adapters_of_experts_are_refused_before_anything_is_rented() -> None:
    spec = preset("qwen3-30b-a3b-8xh100").spec
    spec["learner"] |= {"lora": {"rank": 16}, "cpu_offload": False}
    spec["engine"]["weight_transport"] = "lora"
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is not None
    assert "target_modules names gate_proj, up_proj, down_proj" in plan.refusal
    spec["learner"]["lora"]["target_modules"] = list(ATTENTION)
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is None


def test_qwen3_5_passes_the_plan_and_its_adapters_are_sent_merged() -> None:
    spec = preset("qwen3-8b-8xh100").spec
    spec["model"] = {"source": f"hf:Qwen/Qwen3.5-9B@{COMMIT}"}
    spec["placement"]["learner_ranks"], spec["engine"]["data_parallel_size"] = 4, 4
    spec["learner"]["context_parallel_size"] = 2
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert "token to token: set it to 1" in (plan.refusal or "")
    spec["learner"] |= {"context_parallel_size": 1, "max_micro_tokens": 65_536, "cpu_offload": True}
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is None
    spec["learner"] |= {"lora": {"rank": 16}, "cpu_offload": False}
    spec["engine"]["weight_transport"] = "lora"
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is not None
    assert "set it to auto, which sends the merged weights" in plan.refusal


def test_routes_to_replay_are_bounded_before_anything_is_rented() -> None:
    spec = preset("qwen3-30b-a3b-8xh100").spec
    spec["learner"] |= {"routing_replay": True, "routing_replay_gib": 2.0}
    # A byte for each of 48 layers x 8 experts, of two steps of 16 x 8 rollouts of 32,768 tokens.
    shape = shape_of(spec["model"]["source"])
    assert shape is not None
    assert routes_bytes(RunSpec.model_validate(spec), shape) == 48 * 8 * 2 * 16 * 8 * 32_768
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is not None
    assert "could take 3.0 GiB" in plan.refusal
    assert "learner.routing_replay_gib (2)" in plan.refusal
    spec["learner"]["routing_replay_gib"] = 4.0
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is None


def test_no_rank_loads_a_whole_model_and_the_largest_tensor_is_that_of_a_layers_experts() -> None:
    dense, sparse = (
        hardware_plan(RunSpec.model_validate(preset(name).spec))
        for name in ("qwen3-8b-8xh100", "qwen3-30b-a3b-8xh100")
    )
    assert dense is not None
    assert sparse is not None
    shape = KNOWN["Qwen3-30B-A3B"]
    assert shape.largest_tensor == 128 * 2 * 768 * 2048
    assert shape.largest_tensor > shape.embedding_parameters
    for plan in (dense, sparse):
        lines = _lines(plan)
        assert not any("whole models" in line for line in lines)


def _lines(plan: HardwarePlan) -> tuple[str, ...]:
    estimate = plan.candidates[0].estimate
    assert estimate is not None
    return tuple(estimate.lines)
