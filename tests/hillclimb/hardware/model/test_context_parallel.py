"""Sequences that several ranks share fit where one rank could not hold them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hillclimb.hardware.estimate import Estimate, estimate
from hillclimb.hardware.model.context_parallel import why_indivisible_context
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.run import RunSpec
from tests.hillclimb.hardware.rented import candidate, qwen3_8b

FOUR = {"infra": "lambda", "accelerators": "H100:4"}
TOGETHER = {"weight_transport": "ipc", "data_parallel_size": 4, "gpu_memory_utilization": 0.7}


def on_four(size: int) -> RunSpec:
    """8B at 65k on four H100, each of an engine and a rank; passes of one whole sequence."""
    learner = {
        "cpu_offload": True,
        "context_parallel_size": size,
        "max_micro_tokens": 65_536 // size,
    }
    return qwen3_8b(FOUR, engine=TOGETHER, placement={"learner_ranks": 4}, learner=learner)


def estimate_of(spec: RunSpec, machine: str) -> Estimate:
    return estimate(spec, candidate(machine), 1)


def test_8b_at_65k_fits_four_h100_that_share_each_sequence() -> None:
    assert estimate_of(on_four(1), "H100:4").fits is False
    shared = estimate_of(on_four(4), "H100:4")
    assert shared.fits is True
    lines = "\n".join(shared.lines)
    assert "learner, each of 4 ranks, 4 of which share each sequence" in lines
    assert "36 layers x 16384 tokens x 8192 B" in lines


def test_a_group_is_offered_where_it_makes_the_run_fit() -> None:
    plan = hardware_plan(on_four(1))
    assert plan is not None
    (only,) = plan.candidates
    words = "learner.context_parallel_size 4, learner.max_micro_tokens 16384"
    assert words in only.suggestions
    assert estimate_of(on_four(2), "H100:4").fits is False


LONG = {
    "length": 262_144,
    "model": {"rope": {"factor": 8.0, "original_max_position_embeddings": 32_768}},
    "engine": {"tensor_parallel_size": 2, "data_parallel_size": 2},
    "placement": {"learner_ranks": 4},
}


@pytest.mark.parametrize(
    ("machine", "size", "offload", "fits"),
    [
        ("H100:8", 1, True, False),
        ("H100:8", 4, True, True),
        ("H200:8", 4, False, True),
    ],
)
def test_8b_at_262k_fits_eight_gpus_four_of_which_share_each_sequence(
    machine: str, size: int, offload: bool, fits: bool
) -> None:
    learner: dict[str, Any] = {
        "context_parallel_size": size,
        "max_micro_tokens": 262_144 // size,
        "cpu_offload": offload,
    }
    spec = qwen3_8b({"infra": "lambda", "accelerators": machine}, learner=learner, **LONG)
    found = estimate_of(spec, machine)
    assert found.fits is fits, found.problems


@pytest.mark.parametrize("kept", [True, False])
def test_four_ranks_of_an_h100_keep_the_optimizers_state_in_groups_alone(kept: bool) -> None:
    """Alone a rank has no room: for that state on eight GPUs, for a GPU's slack on four."""
    body = preset("qwen3-8b-4xh100").spec
    assert body["learner"]["context_parallel_size"] == 2
    assert body["learner"]["cpu_offload"] is True
    machine = "H100:8" if kept else "H100:4"
    if kept:
        body["learner"]["cpu_offload"] = False
        body["backend"]["skypilot"]["candidates"] = [{"infra": "lambda", "accelerators": machine}]
        body["engine"]["data_parallel_size"] = 2  # each over two GPUs
        body["placement"]["learner_ranks"] = 4
    shared = estimate_of(RunSpec.model_validate(body), machine)
    body["learner"] |= {"context_parallel_size": 1, "max_micro_tokens": 65_536}
    alone = estimate_of(RunSpec.model_validate(body), machine)
    assert shared.fits is True
    assert alone.fits is not kept
    rank, lone = (
        float(re.search(r"learner, each .*: ([0-9.]+) GiB", "\n".join(each.lines))[1])  # type: ignore[index]
        for each in (shared, alone)
    )
    assert rank < lone - 18, "half of the kept and recomputed activations of 65,536 tokens"


def test_sizes_are_as_the_learner_takes_them() -> None:
    assert why_indivisible_context(8, 32, 8) is None
    assert why_indivisible_context(16, 32, 8) is None  # keys and values are copied
    assert "use one of 1, 2, 4, 8, 16, 32" in str(why_indivisible_context(3, 32, 8))
    assert "use one of 1, 2, 4, 8, 40" in str(why_indivisible_context(5, 40, 8))
    six = qwen3_8b(
        engine={"data_parallel_size": 2},
        placement={"learner_ranks": 6},
        learner={"context_parallel_size": 3},
    )
    problems = " ".join(estimate_of(six, "H100:8").problems)
    assert "learner.context_parallel_size 3 does not divide" in problems
