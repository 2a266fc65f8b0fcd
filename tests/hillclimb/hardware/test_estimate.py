"""What fits and what does not, with numbers worked out by hand beside the code's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hillclimb.hardware.estimate import estimate
from hillclimb.hardware.memory.arithmetic import GIB, Term, largest
from hillclimb.hardware.memory.engine import EngineMemory
from hillclimb.hardware.memory.learner import LearnerMemory
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.plan import hardware_plan
from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec
from tests.hillclimb.hardware.rented import QWEN3_8B, candidate, qwen3_8b, rented

PARAMETERS = 8_190_735_360
OFFLOAD = {"kv_offload_gib": 64}
H100X4 = {"infra": "lambda", "accelerators": "H100:4"}
COLOCATED = {
    "engine": {
        "weight_transport": "ipc",
        "data_parallel_size": 4,
        "gpu_memory_utilization": 0.7,
    },
    "placement": {"learner_ranks": 4},
}


def learner_of(spec: RunSpec) -> LearnerMemory:
    return LearnerMemory(
        shape=KNOWN["Qwen3-8B"],
        learner=spec.learner,
        algorithm=spec.algorithm,
        num_ranks=spec.placement.learner_ranks,
        max_sequence_length=spec.rollout.max_sequence_length,
        by_chunks=spec.engine.is_direct,
    )


def term(terms: tuple[Term, ...], what: str) -> float:
    (found,) = [each.num_bytes for each in terms if what in each.what]
    return found


def test_the_backward_pass_at_65k_adds_up_by_hand() -> None:
    learner = learner_of(qwen3_8b(algorithm={"use_kl_loss": True}))
    phase = largest(learner.phases())
    assert phase.name == "the backward pass of a layer"
    assert term(phase.terms, "Adam's two moments") == 16 * PARAMETERS / 5
    assert term(phase.terms, "reference policy") == 2 * PARAMETERS / 5
    assert term(phase.terms, "embedding and head, gathered") == 2 * (2 * 151_936 + 1) * 4096
    assert term(phase.terms, "each layer's input") == 36 * 65_536 * 2 * 4096
    # Norms 2 x 8 x 4096, heads 8 x 5120 + 2 x 1024, attention 4 x 4096 + 4 x 32, MLP 8 x 12288.
    assert term(phase.terms, "recomputed layer") == 65_536 * 223_360
    assert term(phase.terms, "the head's gradient") == 2 * 151_936 * 4096


def test_a_node_of_eight_h100_holds_8b_at_65k_apart() -> None:
    spec = qwen3_8b()
    found = estimate(spec, candidate(), 1)
    assert found.fits is True
    assert found.problems == ()
    learner = largest(learner_of(spec).phases()).num_bytes / GIB
    assert 60 < learner < 79
    assert any(f"{learner:.1f} GiB" in line for line in found.lines)


def test_four_h100_shared_at_65k_are_refused_with_the_arithmetic() -> None:
    plan = hardware_plan(qwen3_8b(H100X4, **COLOCATED))
    assert plan is not None
    assert plan.refusal is not None
    assert "none of backend.skypilot.candidates is eligible" in plan.refusal
    assert "a rank of the learner needs" in plan.refusal
    assert "beside the engine's 55.3 GiB" in plan.refusal  # 0.7 x 79
    assert "16 B x 8.191e9 trained parameters / 4 ranks" in plan.refusal
    assert "36 layers x 65536 tokens x 8192 B" in plan.refusal
    assert "one H100 has 79 GiB" in plan.refusal


def test_four_h200_shared_at_65k_are_taken_with_less_for_the_engine() -> None:
    shared = COLOCATED | {"engine": COLOCATED["engine"] | {"gpu_memory_utilization": 0.35}}
    spec = qwen3_8b({"infra": "runpod", "accelerators": "H200:4"}, **shared)
    assert estimate(spec, candidate("H200:4"), 1).fits is True


def test_adapters_need_no_optimizer_for_the_model() -> None:
    lora = {"lora": {"rank": 32}}
    engine = {"weight_transport": "lora", "data_parallel_size": 2}
    spec = qwen3_8b(H100X4, learner=lora, engine=engine, placement={"learner_ranks": 2})
    states = learner_of(spec).states()
    adapters = 36 * 32 * (2 * 8192 + 2 * 5120 + 3 * 16_384)
    assert term(states, "Adam's two moments") == 16 * adapters / 2
    assert term(states, "the frozen model") == 2 * PARAMETERS / 2
    assert estimate(spec, candidate("H100:4"), 1).fits is True
    whole = qwen3_8b(H100X4, engine={"data_parallel_size": 2}, placement={"learner_ranks": 2})
    assert estimate(whole, candidate("H100:4"), 1).fits is False


def test_offloading_moves_the_states_to_the_machine() -> None:
    sizes = {"engine": {"data_parallel_size": 2}, "placement": {"learner_ranks": 2}}
    kept = qwen3_8b(H100X4, **sizes)
    moved = qwen3_8b(H100X4, learner={"cpu_offload": True}, **sizes)
    on, off = (estimate(spec, candidate("H100:4"), 1) for spec in (kept, moved))
    assert (on.fits, off.fits) == (False, True)
    assert on.memory_gib is not None
    assert off.memory_gib is not None
    assert off.memory_gib - on.memory_gib == pytest.approx(16 * PARAMETERS / GIB)


def test_what_would_make_it_fit_is_said() -> None:
    plan = hardware_plan(qwen3_8b(H100X4, **COLOCATED))
    assert plan is not None
    (only,) = plan.candidates
    assert only.suggestions == (
        "engines and learner on separate GPUs: engine.weight_transport nccl,"
        " engine.data_parallel_size 3, placement.learner_ranks 1, learner.cpu_offload true",
    )
    assert plan.refusal is not None
    assert plan.refusal.endswith(f"It would fit with {only.suggestions[0]}.")


def test_one_change_is_enough_where_engines_are_apart_already() -> None:
    apart = qwen3_8b(H100X4, engine={"data_parallel_size": 3}, placement={"learner_ranks": 1})
    plan = hardware_plan(apart)
    assert plan is not None
    words = plan.candidates[0].suggestions
    assert "learner.cpu_offload true" in words
    assert "learner.lora {}, engine.weight_transport lora (only adapters are trained)" in words
    assert not any("max_sequence_length" in each for each in words), (
        "the optimizer alone is too big"
    )
    three = qwen3_8b(H100X4, engine={"data_parallel_size": 1}, placement={"learner_ranks": 3})
    plan = hardware_plan(three)
    assert plan is not None
    shorter = [each for each in plan.candidates[0].suggestions if "max_sequence_length" in each]
    assert shorter == [
        "rollout.max_sequence_length 49152, rollout.max_input_length 40960,"
        " learner.max_micro_tokens 49152"
    ]


def test_an_engine_that_cannot_hold_one_rollout_does_not_start() -> None:
    spec = qwen3_8b(engine={"gpu_memory_utilization": 0.25})
    found = estimate(spec, candidate(), 1)
    assert found.fits is False
    assert "the engine's cache cannot hold one rollout of 65536 tokens" in found.problems[0]


def test_the_cache_is_what_weights_and_the_largest_pass_leave() -> None:
    spec = qwen3_8b()
    engine = EngineMemory(
        shape=KNOWN["Qwen3-8B"],
        engine=spec.engine,
        max_sequence_length=65_536,
        max_concurrent=96,
        gpu_gib=79,
    )
    prompt = 8192 * 3 * 2 * (4096 + 12_288)
    scores = 12 * 96 * 151_936
    left = 0.9 * 79 * GIB - 2 * PARAMETERS - prompt - scores - 1.5 * GIB
    assert engine.cache_bytes == pytest.approx(left)
    assert engine.full_sequences == pytest.approx(left / (147_456 * 65_536))


def test_between_gpus_no_file_of_weights_is_in_the_machines_memory() -> None:
    """What `auto` means there: a broadcast from GPU to GPU, in chunks."""
    offloaded = {"placement": {"learner_ranks": 2}, "learner": {"cpu_offload": True}}
    auto, nccl, shm = (
        estimate(
            qwen3_8b(engine={"weight_transport": transport}, **offloaded), candidate(), 1
        ).memory_gib
        for transport in ("auto", "nccl", "shm")
    )
    assert auto is not None
    assert shm is not None
    assert auto == nccl
    assert shm - auto == pytest.approx(2 * 2 * PARAMETERS / GIB)


@pytest.mark.parametrize(("lora", "per_parameter"), [(None, 2), ({}, 4 + 2)])
def test_a_save_rounds_before_it_gathers_unless_adapters_are_merged(
    lora: dict[str, int] | None, per_parameter: int
) -> None:
    learner = {"cpu_offload": True} if lora is None else {"lora": lora}
    spec = qwen3_8b(
        engine={"weight_transport": "disk"}, placement={"learner_ranks": 1}, learner=learner
    )
    lines = estimate(spec, candidate(), 1).lines
    (whole,) = [line for line in lines if "the whole policy on rank 0" in line]
    assert f": {per_parameter} B x" in whole


@pytest.mark.parametrize(("transport", "largest"), [("shm", 99), ("nccl", 96)])
def test_weights_that_arrive_need_room_beside_what_vllm_reserves(
    transport: str, largest: int
) -> None:
    """By nccl the head, of 1.2 GiB in bfloat16, and a tensor of that size in vLLM."""
    fits = [
        share
        for share in range(90, 101)
        if not any(
            "leaves no room" in problem
            for problem in estimate(
                qwen3_8b(
                    engine={"weight_transport": transport, "gpu_memory_utilization": share / 100}
                ),
                candidate(),
                1,
            ).problems
        )
    ]
    assert max(fits) == largest


def test_an_engine_keeps_a_copy_of_each_chunk_on_a_shared_gpu_too() -> None:
    """Twice the head in bfloat16: its copy, and vLLM's own tensor."""
    engine = EngineMemory(
        shape=KNOWN["Qwen3-8B"],
        engine=qwen3_8b().engine,
        max_sequence_length=65_536,
        max_concurrent=96,
        gpu_gib=79,
    )
    assert engine.update_bytes("ipc") == engine.update_bytes("nccl") == 2 * 2 * 151_936 * 4096
    assert engine.update_bytes("shm") == 0.0


def test_float32_on_a_gpu_holds_every_pair() -> None:
    spec = qwen3_8b(learner={"policy_dtype": "float32"})
    found = estimate(spec, candidate(), 1)
    assert found.fits is False
    plan = hardware_plan(spec)
    assert plan is not None
    assert "learner.policy_dtype bfloat16" in plan.candidates[0].suggestions


def test_asked_sizes_that_are_too_small_are_refused() -> None:
    found = estimate(qwen3_8b(), candidate(memory_gb=64, disk_gb=100), 1)
    assert found.fits is False
    assert any("memory_gb of H100:8 on lambda is 64: raise it" in each for each in found.problems)
    assert any("disk_gb of H100:8 on lambda is 100: raise it" in each for each in found.problems)


def test_the_disk_holds_two_checkpoints() -> None:
    found = estimate(qwen3_8b(), candidate(), 1)
    checkpoint = 2 * PARAMETERS + 12 * PARAMETERS
    assert found.disk_gib == pytest.approx(
        50 + 25 + 5 + (2 * PARAMETERS + 2 * checkpoint) / GIB, rel=1e-6
    )


def test_the_demo_fits_anywhere_and_takes_little() -> None:
    tiny = rented({"infra": "slurm/skytest", "accelerators": "H100:8"}, num_nodes=2)
    assert estimate(tiny, candidate(), 2).fits is True
    on_cpus = estimate(rented({"infra": "aws"}), candidate(None, infra="aws"), 1)
    assert on_cpus.fits is True
    assert on_cpus.memory_gib is not None
    assert on_cpus.memory_gib < 8


def test_what_is_not_known_is_not_judged() -> None:
    unread = rented(model={"source": "s3://bucket/model"})
    assert estimate(unread, candidate(), 1).fits is None
    assert estimate(unread, candidate(), 1, KNOWN["Qwen3-8B"]).fits is not None
    strange = estimate(qwen3_8b(), candidate("TPU-9:8"), 1)
    assert strange.fits is None
    assert "the memory of a TPU-9 is unknown" in strange.problems[0]


def test_runs_without_a_model_fit() -> None:
    spec = make_spec(kind="preview")
    assert estimate(spec, candidate(None), 1).fits is True


def test_an_evaluation_needs_engines_alone() -> None:
    spec = qwen3_8b(H100X4, kind="eval", engine={"data_parallel_size": 4})
    found = estimate(spec, candidate("H100:4"), 1)
    assert found.fits is True
    assert not any("learner" in line for line in found.lines)


def test_a_cache_of_fp8_holds_twice_as_much() -> None:
    def engine_of(**engine: object) -> EngineMemory:
        spec = qwen3_8b(engine=engine)
        return EngineMemory(
            shape=KNOWN["Qwen3-8B"], engine=spec.engine, max_sequence_length=65_536,
            max_concurrent=96, gpu_gib=79.0,
        )  # fmt: skip

    usual, small = engine_of(), engine_of(kv_cache_dtype="fp8")
    assert usual.kv_bytes_per_token == 2 * 2 * 36 * 1024
    assert small.kv_bytes_per_token == usual.kv_bytes_per_token / 2
    assert small.full_sequences == pytest.approx(2 * usual.full_sequences)


def test_evicted_parts_of_the_caches_are_in_main_memory() -> None:
    without, held = (estimate(qwen3_8b(engine=each), candidate(), 1) for each in ({}, OFFLOAD))
    assert held.memory_gib is not None
    assert without.memory_gib is not None
    assert held.memory_gib - without.memory_gib == pytest.approx(3 * 64)
    assert any("3 engines x 64 GiB (engine.kv_offload_gib)" in line for line in held.lines)


def test_one_of_something_is_no_several() -> None:
    single = {"engine": OFFLOAD | {"data_parallel_size": 1}, "placement": {"learner_ranks": 1}}
    found = estimate(qwen3_8b(**single), candidate(), 1)
    text = "\n".join(found.lines)
    assert "learner, 1 rank, most during" in text
    assert "1 engine x 64 GiB (engine.kv_offload_gib)" in text
    assert re.findall(r"\b1 (?:engines|ranks|rollout workers|GPUs|nodes)\b", text) == []


def test_a_machine_without_a_gpu_has_no_such_cache() -> None:
    found = estimate(qwen3_8b(engine=OFFLOAD, model={"source": QWEN3_8B}), candidate(None), 1)
    assert any("engine.kv_offload_gib 64 needs a GPU" in each for each in found.problems)


def in_turns(*, level: int = 1, **engine: object) -> RunSpec:
    sizes = {"data_parallel_size": 8, "gpu_memory_utilization": 0.8, "sleep_level": level}
    return qwen3_8b(
        engine={"weight_transport": "ipc", **sizes, **engine},
        placement={"learner_ranks": 8, "colocate": True},
    )


def test_engines_and_learner_in_turns_fit_where_both_at_once_do_not() -> None:
    spec = in_turns()
    assert estimate(spec, candidate(), 1).problems == ()
    both = spec.model_copy(
        update={"placement": spec.placement.model_copy(update={"colocate": False})}
    )
    (problem,) = estimate(both, candidate(), 1).problems
    assert "a rank of the learner needs" in problem
    assert "beside the engine's 63.2 GiB" in problem  # 0.8 x 79


def test_a_gpu_in_turns_holds_engine_and_parked_learner_by_hand() -> None:
    """While sampling: the engine's share, weights of record, a gathered tensor, both contexts."""
    learner = replace(learner_of(in_turns()), takes_turns=True)
    sampling = next(phase for phase in learner.phases() if phase.name == "sampling")
    gathered = 6 * 151_936 * 4096
    assert sampling.num_bytes == pytest.approx(4 * PARAMETERS / 8 + 1.05 * gathered + 2 * GIB)
    fits, too_much = (79 * GIB - sampling.num_bytes) / (79 * GIB), "during sampling"
    assert estimate(in_turns(gpu_memory_utilization=fits - 0.001), candidate(), 1).problems == ()
    over = estimate(in_turns(gpu_memory_utilization=fits + 0.001), candidate(), 1).problems
    assert any(too_much in each for each in over)


def test_what_waits_for_its_turn_is_in_main_memory() -> None:
    first, second = (estimate(in_turns(level=level), candidate(), 1) for level in (1, 2))
    parked = f"{8 * PARAMETERS / GIB:.1f} GiB Adam's moments, parked"
    asleep = f"{8 * 2 * PARAMETERS / GIB:.1f} GiB weights of sleeping engines"
    assert any(parked in line for line in first.lines)
    assert any(asleep in line for line in first.lines)
    assert any(parked in line for line in second.lines)
    assert not any("sleeping engines" in line for line in second.lines)
    assert any("asleep while these learn" in line for line in first.lines)
