"""Layouts of long contexts and cells of the presets, tables of docs/clusters.md."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.hardware.estimate import Estimate
from hillclimb.hardware.plan import CandidatePlan, hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.run import RunSpec

LONG = (
    ("H100:4", 65_536, (2, 1), (2, 2), True),
    ("H100:8", 65_536, (5, 1), (3, 1), True),
    ("H100:8", 65_536, (4, 1), (4, 2), False),
    ("H100:8", 131_072, (2, 2), (4, 4), False),
    ("H100:8", 262_144, (2, 2), (4, 4), True),
    ("H200:8", 131_072, (4, 1), (4, 2), False),
    ("H200:8", 262_144, (2, 2), (4, 4), False),
)
"""Machine, context, engines and GPUs of each, ranks and how many share a sequence, offload."""


def long_contexts() -> Iterator[str]:
    """Yield layouts of Qwen3-8B at long contexts, as the estimate finds that they fit."""
    yield "| GPUs | context | engines | ranks | share a sequence | `cpu_offload` | fits | a rank needs | rollouts in an engine's cache |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|"
    for machine, length, (engines, size), (ranks, group), offload in LONG:
        spec = preset("qwen3-8b-8xh100").spec
        spec["backend"]["skypilot"]["candidates"] = [{"infra": "nebius", "accelerators": machine}]
        spec["model"]["rope"]["factor"] = length / 32_768
        spec["rollout"] |= {"max_sequence_length": length, "max_input_length": length - 8192}
        spec["engine"] |= {"data_parallel_size": engines, "tensor_parallel_size": size}
        spec["placement"]["learner_ranks"] = ranks
        spec["learner"] |= {
            "context_parallel_size": group,
            "max_micro_tokens": length // group,
            "cpu_offload": offload,
        }
        plan = hardware_plan(RunSpec.model_validate(spec))
        assert plan is not None
        found = plan.candidates[0].estimate
        assert found is not None
        cached = next(line for line in found.lines if "the cache holds" in line)
        yield (
            f"| {machine} | {length:,} | {engines} over {size} | {ranks} | {group}"
            f" | {str(offload).lower()} | {'yes' if found.fits else 'no'} | {rank_gib(found)}"
            f" | {cached.partition('holds ')[2].partition(' ')[0]} |"
        )


def rank_gib(found: Estimate) -> str:
    """Return what a rank of the learner needs, in GiB."""
    rank = next(line for line in found.lines if line.startswith("learner, "))
    return rank.rpartition(": ")[2]


def machine_and_share(planned: CandidatePlan) -> str:
    """Return a preset's machine, and the share of a step for which its GPUs compute on paper."""
    assert planned.estimate is not None
    assert planned.estimate.step_time is not None
    return f"{planned.candidate.accelerators} {planned.estimate.step_time.busy_share:.0%}"
