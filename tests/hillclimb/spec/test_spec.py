"""Impossible combinations are refused with a sentence that names what to change."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data": {"env_keys": ["booking", "booking"]}}, "list each one once"),
    ({"data": {"env_keys": ["jira"]}}, "minifleet has booking, github"),
    ({"environment": {"call_timeout_s": 300}}, "lower the first or raise the second"),
    (
        {"environment": {"overrides": {"booking": {"trajectory_timeout_s": 20}}}},
        "call_timeout_s of booking (30) must be smaller than trajectory_timeout_s (20)",
    ),
    (
        {"environment": {"turn_timeout_s": 30}},
        "call_timeout_s (30) must be smaller than turn_timeout_s (30)",
    ),
    (
        {"environment": {"overrides": {"booking": {"turn_timeout_s": 301}}}},
        "turn_timeout_s of booking (301) must be smaller than trajectory_timeout_s (300)",
    ),
    ({"environment": {"reset_timeout_s": 300}}, "reset_timeout_s (300) must be smaller than"),
    ({"schedule": {"step_timeout_s": 300}}, "a rollout may take 420 s"),
    ({"eval": {"budget_minutes": 20}}, "(1200 s and 420 s) do not fit schedule.step_timeout_s"),
    ({"kind": "eval", "eval": {"stop_when_decided": True}}, "a run of kind eval has one alone"),
    ({"eval": {"stop_when_decided": {"futility": 0.6}}}, "less than or equal to 0.5"),
    ({"kind": "probe", "probe": {"budget_minutes": 20}}, "lower the budget or raise the deadline"),
    ({"kind": "probe", "probe": {"tasks_per_env": 5000}}, "a probe would have"),
    ({"kind": "sweep"}, "'train', 'eval'"),
    ({"engine": {"weight_transport": "nccl"}}, "weight_transport nccl needs vLLM"),
    (
        {"engine": {"type": "torch", "kv_cache_gib": 64}},
        'kv_cache_gib is set, but it is read only where type is "auto" or "vllm"',
    ),
    (
        {"engine": {"type": "torch", "kv_cache_dtype": "fp8"}},
        'kv_cache_dtype is set, but it is read only where type is "vllm"',
    ),
    (
        {"engine": {"type": "vllm", "kv_cache_dtype": "fp8"}},
        "kv_cache_dtype fp8 is for models in bfloat16, and engine.dtype is float32",
    ),
    (
        {"engine": {"type": "vllm", "dtype": "bfloat16", "kv_cache_dtype": "fp8"}},
        "engine.kv_cache_dtype fp8 was never run: set experimental to true",
    ),
    (
        {"placement": {"colocate": True}},
        "engine.weight_transport auto takes weights elsewhere: set it to ipc",
    ),
    (
        {"placement": {"colocate": True}, "engine": {"type": "vllm", "weight_transport": "ipc"}},
        "placement.colocate was never run: set experimental to true",
    ),
    (
        {
            "placement": {"colocate": True},
            "engine": {"type": "vllm", "weight_transport": "ipc"},
            "schedule": {"max_staleness_steps": 1},
        },
        "schedule.max_staleness_steps 1 lets rollouts go on meanwhile: set it to 0",
    ),
    (
        {
            "placement": {"colocate": True, "type": "inline"},
            "engine": {"type": "vllm", "weight_transport": "ipc"},
        },
        "placement.colocate needs processes of its own",
    ),
    (
        {"engine": {"type": "vllm", "sleep_level": 2}},
        "engine.sleep_level 2 does nothing while no engine sleeps",
    ),
    (
        {"engine": {"type": "vllm", "kv_offload_gib": 64}},
        "engine.kv_offload_gib above 0 was never run: set experimental to true",
    ),
    ({"engine": {"type": "torch", "gpu_memory_utilization": 0.3}}, "leave gpu_memory_utilization"),
    (
        {"engine": {"type": "vllm", "weight_transport": "nccl"}},
        "engine.weight_transport nccl on GPUs was never run: set experimental to true",
    ),
    (
        {"engine": {"type": "vllm", "weight_transport": "ipc", "tensor_parallel_size": 2}},
        "set tensor_parallel_size to 1, or the transport to nccl",
    ),
    (
        {"engine": {"type": "vllm", "weight_transport": "ipc", "data_parallel_size": 2}},
        "there are 2 and 1: set engine.data_parallel_size and placement.learner_ranks",
    ),
    (
        {"engine": {"type": "vllm", "weight_transport": "nccl"}, "learner": {"lora": {}}},
        "an adapter is trained: set the transport to lora",
    ),
    (
        {"environment": {"overrides": {"booking": {"trajectory_timeout_s": 2000}}}},
        "a rollout may take 2120 s",
    ),
    (
        {"schedule": {"run_timeout_s": 1500}},
        "step_timeout_s (1500) must be smaller than run_timeout_s (1500)",
    ),
    ({"environment": {"overrides": {"github": {}}}}, "add it there or remove the override"),
    ({"model": {"source": "hf:Qwen/Qwen3-4B"}}, "write hf:Qwen/Qwen3-4B@REVISION"),
    ({"model": {"source": "hf:Qwen/Qwen3-8B@main"}}, "the full commit hash"),
    ({"rollout": {"max_generate_length": 500}}, "(880 + 500 > 1024)"),
    ({"schedule": {"train_batch_size": 5, "mini_batch_size": 2}}, "choose a divisor"),
    (
        {
            "data": {"env_keys": ["booking", "github", "reddit"]},
            "schedule": {"train_batch_size": 2, "mini_batch_size": 1},
        },
        "set data.sampling to hybrid",
    ),
    (
        {"data": {"env_keys": ["booking"], "train_tasks_by_env": {"github": 5}}},
        "train_tasks_by_env names 'github', which env_keys does not list",
    ),
    (
        {"data": {"env_keys": ["booking"], "min_samples_per_env": 2}},
        "min_samples_per_env does nothing in balanced sampling: set sampling to hybrid",
    ),
    (
        {"data": {"env_keys": ["booking"], "curriculum": {}}},
        "add another or set curriculum to null",
    ),
    (
        {
            "data": {
                "env_keys": ["booking", "github"],
                "sampling": "hybrid",
                "min_samples_per_env": 10,
                "curriculum": {},
            }
        },
        "which leaves the curriculum nothing",
    ),
    (
        {"data": {"env_keys": ["booking"], "train_tasks_per_env": 1}},
        "is larger than the number of training tasks (1)",
    ),
    (
        {
            "data": {"env_keys": ["booking", "github"], "train_tasks_by_env": {"github": 3}},
            "schedule": {"train_batch_size": 8, "mini_batch_size": 8},
        },
        "github has fewer training tasks (3) than its share of a step (4)",
    ),
    ({"eval": {"decodings": [{"name": "train"}]}}, "is taken by training rollouts"),
    (
        {"eval": {"decodings": [{"name": "g", "temperature": 0, "n_samples_per_prompt": 4}]}},
        "set n_samples_per_prompt to 1",
    ),
    (
        {"eval": {"decodings": [{"name": "g", "temperature": 0, "top_p": 0.9}]}},
        "leave top_p out or set a temperature above 0",
    ),
    ({"eval": {"decodings": [{"name": "a"}, {"name": "a"}]}}, "name each one differently"),
    ({"eval": {"interval_decodings": []}}, "at least 1 item"),
    ({"eval": {"interval_decodings": ["cold"]}}, "interval_decodings names ['cold']"),
    ({"engine": {"type": "torch", "dtype": "bfloat16"}}, "set engine.dtype to float32"),
    ({"tracking": {"wandb": {"mode": "on"}}}, "'disabled', 'offline' or 'online'"),
    ({"engine": {"tensor_parallel_size": 2}}, "set experimental to true"),
    (
        {"schedule": {"train_batch_size": 1251, "mini_batch_size": 1251}},
        "a training step would have 10008 rollouts",
    ),
    (
        {"data": {"env_keys": ["booking"], "eval_tasks_per_env": 10_000}, "eval": {"decodings": [
            {"name": "sampled", "n_samples_per_prompt": 2}]}},
        "an evaluation by sampled would have 20000 rollouts",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "sentence"), REFUSED, ids=lambda value: str(value)[:40])
def test_an_impossible_combination_says_what_to_do(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        make_spec(**sections)
    assert sentence in str(refused.value)


def test_environments_may_outnumber_the_prompts_of_a_step_where_they_take_turns() -> None:
    data = {"env_keys": ["booking", "github", "reddit"], "sampling": "hybrid"}
    spec = make_spec(data=data, schedule={"train_batch_size": 2, "mini_batch_size": 1})
    assert spec.data.min_samples_per_env == 1


def test_an_override_replaces_one_deadline_and_keeps_the_other() -> None:
    patient = {"overrides": {"booking": {"call_timeout_s": 200}}}
    assert make_spec(environment=patient).environment.overrides["booking"].call_timeout_s == 200


def test_a_rollout_without_retries_needs_no_time_for_them() -> None:
    once = {"max_infra_retries": 0, "verifier_timeout_s": 100}
    assert make_spec(environment=once).environment.longest_rollout_s == 430.0
    slow = {"overrides": {"booking": {"call_timeout_s": 200}}}
    assert make_spec(environment=slow).environment.longest_rollout_s == 760.0


def test_a_spec_is_its_own_json() -> None:
    spec = make_spec(environment={"overrides": {"booking": {"temperature": 0.5}}})
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"engine": {"type": "auto"}}, "deterministic needs engine.type torch"),
        ({"placement": {"type": "ray"}}, "deterministic needs placement.type inline"),
        ({"schedule": {"max_staleness_steps": 1}}, "needs schedule.max_staleness_steps 0"),
        ({"environment": {"call_timeout_s": 5.0}}, "environment.call_timeout_s is set"),
        (
            {"environment": {"overrides": {"booking": {"trajectory_timeout_s": 60.0}}}},
            "environment.overrides.booking.trajectory_timeout_s is set",
        ),
        ({"environment": {"faults": {"latency_s": 0.1}}}, "injected faults are counted"),
        (
            {"environment": {"overrides": {"booking": {"faults": {"call_error_rate": 0.1}}}}},
            "injected faults are counted",
        ),
        ({"eval": {"budget_minutes": 1.0}}, "eval.budget_minutes lets a clock decide"),
        (
            {"kind": "probe", "probe": {"budget_minutes": 1.0}},
            "probe.budget_minutes lets a clock decide",
        ),
    ],
)
def test_a_deterministic_run_has_nothing_that_races(
    sections: dict[str, Any], sentence: str
) -> None:
    whole = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}
    assert make_spec(deterministic=True, **whole).deterministic
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        make_spec(deterministic=True, **(whole | sections))


def test_a_deterministic_step_may_be_shorter_than_deadlines_it_does_not_read() -> None:
    whole = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}
    make_spec(deterministic=True, schedule={"step_timeout_s": 100.0}, **whole)
    with pytest.raises(ValidationError, match="a rollout may take"):
        make_spec(schedule={"step_timeout_s": 100.0}, **whole)


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        (True, {"baseline_step": None, "futility": None}),
        (False, None),
        ({"futility": 0.1}, {"baseline_step": None, "futility": 0.1}),
    ],
)
def test_ending_evaluations_early_is_switched_on_alone_or_with_conditions(
    written: object, resolved: object
) -> None:
    spec = make_spec(eval={"stop_when_decided": written})
    assert spec.model_dump(mode="json")["eval"]["stop_when_decided"] == resolved
