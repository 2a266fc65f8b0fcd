"""The time of a step on paper: numbers worked out by hand, the review's figures, every preset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.hardware.estimate import estimate
from hillclimb.hardware.memory.engine import EngineMemory
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.speed.step_time import StepArithmetic, StepTime, Workload
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import presets
from hillclimb.spec.run import RunSpec
from tests.hillclimb.hardware.rented import candidate, qwen3_8b

PARAMETERS = 8_190_735_360
EMBEDDING = 151_936 * 4096
BODY = PARAMETERS - 2 * EMBEDDING
PER_PAIR = 4 * 36 * 4096
"""FLOPs of a pair of tokens in all layers."""
CACHED = 2 * 36 * 1024 * 2
"""Bytes of a token in the cache."""
PEAK, BANDWIDTH = 989e12, 3.35e12
EIGHT_GPUS = ("H100:8", "H200:8")


def arithmetic(spec: RunSpec, **values: Any) -> StepArithmetic:
    """Of Qwen3-8B on eight H100."""
    shape, length = KNOWN["Qwen3-8B"], spec.rollout.max_sequence_length
    engine = EngineMemory(
        shape=shape,
        engine=spec.engine,
        max_sequence_length=length,
        max_concurrent=spec.environment.max_concurrent_rollouts,
        gpu_gib=79,
    )
    return StepArithmetic(
        spec=spec,
        shape=shape,
        num_gpus=8,
        cache_bytes=engine.cache_bytes,
        kv_bytes_per_token=CACHED // (2 if spec.engine.kv_cache_dtype == "fp8" else 1),
        weight_bytes=2 * PARAMETERS,
        num_trained=PARAMETERS,
        pass_tokens=spec.learner.max_micro_tokens,
        flops_per_s=PEAK,
        bytes_per_s=BANDWIDTH,
        transport=spec.engine.weight_transport,
        **values,
    )


def simple(**sections: Any) -> RunSpec:
    """Two engines with two rollouts each at once, and two ranks; groups of two rollouts."""
    body: dict[str, Any] = {
        "environment": {"max_concurrent_rollouts": 4},
        "rollout": {"n_samples_per_prompt": 2},
        "schedule": {"train_batch_size": 6, "mini_batch_size": 3},
        "engine": {"data_parallel_size": 2},
        "placement": {"learner_ranks": 2},
    }
    for name, values in sections.items():
        body[name] = body.get(name, {}) | values
    return qwen3_8b(**body)


SHORT = Workload(prompt=1000, length=3000, drawn=500)


def test_generation_adds_up_by_hand() -> None:
    made = arithmetic(simple(), workload=SHORT)
    assert made.num_decoded() == 2, "four in flight over two engines; the cache has room for more"
    per_token = (2 * PARAMETERS + 2 * 2000 * CACHED) / (0.7 * BANDWIDTH)
    assert made.token_s() == pytest.approx(per_token)
    # Of 12 rollouts an engine has 6, two at a time, and each draws 500 tokens.
    assert made.decoding_s() == pytest.approx(3 * 500 * per_token)
    prompt = 2 * BODY * 1000 + PER_PAIR * 1000**2 / 2
    observed = 2 * BODY * 1500 + PER_PAIR * 1500 * 2000
    flops = 6 * prompt + 12 * observed
    assert made.prefill_s() == pytest.approx(flops / (2 * 0.42 * PEAK))
    assert made.time().generation_s == pytest.approx(made.decoding_s() + made.prefill_s())


def test_the_cache_bounds_what_is_decoded_at_once() -> None:
    spec = simple(environment={"max_concurrent_rollouts": 1000}, schedule={"train_batch_size": 900})
    made = arithmetic(spec, workload=SHORT)
    # Half of the prompt that two share, half of the own 2,000 tokens, and the longest turn.
    each = CACHED * (500 + 1000 + 8192)
    assert made.num_decoded() == pytest.approx(made.cache_bytes / each)
    halved = simple(
        environment={"max_concurrent_rollouts": 1000},
        schedule={"train_batch_size": 900},
        engine={"kv_cache_dtype": "fp8"},
    )
    twice = arithmetic(halved, workload=SHORT).num_decoded()
    assert twice == pytest.approx(2 * made.num_decoded())


def test_an_update_adds_up_by_hand() -> None:
    made = arithmetic(simple(), workload=SHORT)
    # A group is one pass: its prompt once, and two branches of 2,000 tokens.
    pairs = 1000**2 / 2 + 2 * (2000 * 1000 + 2000**2 / 2)
    forward = 2 * BODY * 5000 + 2 * EMBEDDING * 1000 + PER_PAIR * pairs
    per_step = 6 * forward / (2 * 0.42 * PEAK)
    assert made.update_s() == pytest.approx(3 * per_step)
    scored = simple(
        algorithm={"use_kl_loss": True, "off_policy_correction": {"tis_ratio_type": "token"}}
    )
    assert arithmetic(scored, workload=SHORT).update_s() == pytest.approx(5 * per_step)
    lora = simple(learner={"lora": {"rank": 8}}, engine={"weight_transport": "lora"})
    adapted = arithmetic(lora, workload=SHORT)
    frozen = 6 * (2 * BODY * 5000 + 2 * EMBEDDING * 1000) / (2 * 0.42 * PEAK)
    assert adapted.update_s() == pytest.approx(3 * per_step - frozen)


def test_a_group_too_large_for_a_pass_has_its_prompt_computed_again() -> None:
    spec = simple(
        rollout={"max_sequence_length": 4096, "max_input_length": 3000, "max_generate_length": 512},
        learner={"max_micro_tokens": 4096},
    )
    made = arithmetic(spec, workload=SHORT)
    pairs = 2 * (1000**2 / 2 + 2000 * 1000 + 2000**2 / 2)
    forward = 2 * BODY * 6000 + 2 * EMBEDDING * 1000 + PER_PAIR * pairs
    assert made.update_s() == pytest.approx(3 * 6 * forward / (2 * 0.42 * PEAK))


def test_offloaded_ranks_wait_for_the_machines_memory() -> None:
    assert arithmetic(simple(), workload=SHORT).waiting_s() == 0.0
    made = arithmetic(simple(learner={"cpu_offload": True}), workload=SHORT)
    # 30,000 tokens over two ranks are a pass of each of two updates.
    expected = 2 * PARAMETERS / 2 * (4 / 64e9 + 0.27e-9 + 0.6e-9)
    assert made.waiting_s() == pytest.approx(expected)
    assert made.time().busy_share < arithmetic(simple(), workload=SHORT).time().busy_share


def test_the_share_is_that_of_the_gpus_that_compute() -> None:
    apart = StepTime(
        generation_s=60,
        update_s=20,
        waiting_s=10,
        idle_s=10,
        engine_gpus=2,
        learner_gpus=6,
        num_gpus=8,
        shares=False,
        overlaps=False,
        workload=SHORT,
    )
    assert apart.step_s == 100
    assert apart.busy_share == pytest.approx((2 * 60 + 6 * 20) / 800)
    assert "compute for 30% of a step" in apart.line
    assert "3,000 tokens and 500 are drawn: engines 60 s" in apart.line
    assert "20 s and 10 s for its memory, in turn" in apart.line
    at_once = replace(apart, overlaps=True)
    assert at_once.step_s == 70, "the longer of 60 and 30, and 10 for the weights"
    assert at_once.busy_share == pytest.approx((2 * 60 + 6 * 20) / 560)
    turns = replace(apart, engine_gpus=8, learner_gpus=8, shares=True)
    assert turns.busy_share == pytest.approx(80 / 100)
    assert replace(turns, overlaps=True).step_s == 100, "one GPU does not compute both at once"


OF_THE_REVIEW: dict[str, Any] = {
    "schedule": {"train_batch_size": 64, "mini_batch_size": 64},
    "rollout": {"n_samples_per_prompt": 4},
    "algorithm": {"use_kl_loss": True},
}
"""64 x 4 rollouts of Qwen3-8B at 65k, synchronous, with a reference policy."""


def test_two_engines_beside_six_ranks_are_as_idle_as_the_review_says() -> None:
    """It has 15 to 20 min, 5 min, 24 min and 37 %, at an MFU of about 30 %.

    Its learner computes each prompt four times; here a group shares it, and 5 min are 3.7.
    """
    spec = qwen3_8b(
        engine={"data_parallel_size": 2}, placement={"learner_ranks": 6}, **OF_THE_REVIEW
    )
    made = arithmetic(spec, mfu=0.3)
    assert made.token_s() == pytest.approx(0.028, rel=0.2)
    assert made.num_decoded() == pytest.approx(19, rel=0.2)
    assert 15 < made.decoding_s() / 60 < 20
    assert 3 < made.update_s() / 60 < 5
    assert made.time().step_s / 60 == pytest.approx(24, rel=0.05)
    assert made.time().busy_share == pytest.approx(0.37, abs=0.05)
    assert "compute for 33% of a step" in made.time().line, "as docs/clusters.md has it"


def test_gpus_in_turns_take_as_long_as_the_review_says() -> None:
    """5 + 4 + 0.5 min."""
    spec = qwen3_8b(
        engine={"data_parallel_size": 8, "weight_transport": "ipc"},
        placement={"learner_ranks": 8, "colocate": True},
        **OF_THE_REVIEW,
    )
    time = arithmetic(spec, mfu=0.3).time()
    assert time.step_s / 60 == pytest.approx(9.5, rel=0.1)
    assert time.busy_share > 0.9


@pytest.mark.parametrize("machine", EIGHT_GPUS)
def test_presets_for_eight_gpus_keep_them_busy(machine: str) -> None:
    shares = {}
    for name, each in presets().items():
        plan = hardware_plan(RunSpec.model_validate(each.spec))
        for made in () if plan is None else plan.candidates:
            if made.candidate.accelerators == machine:
                assert made.estimate is not None
                assert made.estimate.step_time is not None
                shares[name] = made.estimate.step_time.busy_share
    assert shares
    assert min(shares.values()) >= 0.75, shares


def test_a_plan_prints_the_share_where_it_means_something() -> None:
    made = estimate(qwen3_8b(), candidate(), 1)
    assert made.step_time is not None
    assert made.lines[-1] == made.step_time.line
    paid = estimate(qwen3_8b(), candidate(), 2).step_time
    assert paid is not None
    assert paid.busy_share == pytest.approx(made.step_time.busy_share / 2), "a node that is idle"
    small = qwen3_8b(model={"source": f"hf:Qwen/Qwen3-0.6B@{'0' * 40}", "rope": None}, length=32768)
    assert estimate(small, candidate(), 1).fits is True
    assert estimate(small, candidate(), 1).step_time is None
    assert estimate(qwen3_8b(kind="eval"), candidate(), 1).step_time is None
