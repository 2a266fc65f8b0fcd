"""A saved position goes on exactly, in every mode and with a curriculum, or is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.checkpoint_manifest import Manifest
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.spec.data import CurriculumSpec
from tests.trainer.fixtures.groups import a_group
from trainer.errors import CheckpointError
from trainer.inputs.tasks.sampler import UNSAMPLED_AFTER, TaskSampler
from trainer.inputs.tasks.sampling import PromptSampling

ENVS = ("booking", "github", "outlook", "reddit")
TASKS = minifleet_tasks(ENVS, "train", {"booking": 4, "github": 9, "outlook": 25, "reddit": 60}, 0)
EAGER = CurriculumSpec(interval=2, floor=0.1, half_life=3.0, min_change=0.0)

SAMPLINGS = st.builds(
    PromptSampling,
    mode=st.sampled_from(["balanced", "proportional", "hybrid"]),
    min_samples_per_env=st.integers(1, 3),
    curriculum=st.sampled_from([None, EAGER, CurriculumSpec()]),
)


def through_a_manifest(state: dict[str, JsonValue]) -> dict[str, JsonValue]:
    manifest = Manifest(
        run_id="run_0123456789",
        step=1,
        attempt=1,
        config_hash="0" * 64,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        files=(),
        sampler=state,
    )
    return Manifest.model_validate_json(manifest.model_dump_json()).sampler


def groups_of(step: int) -> list[list[OutcomeRow]]:
    """A third of the groups of github teach, all of reddit, none of the others."""
    return [
        a_group("booking", f"b{step}", [1.0, 1.0]),
        a_group("reddit", f"r{step}", [0.0, 1.0]),
        a_group("github", f"g{step}", [0.0, float(step % 3 == 0)]),
    ]


@given(
    sampling=SAMPLINGS,
    prompts=st.integers(1, 16),
    calls=st.lists(st.booleans(), max_size=40),
    seed=st.integers(0, 5),
)
@settings(max_examples=80, deadline=None)
def test_a_sampler_resumed_between_any_two_calls_goes_on_as_if_nothing_happened(
    sampling: PromptSampling, prompts: int, calls: list[bool], seed: int
) -> None:
    """`calls`: True draws a step, False observes one; draws may run ahead, as they like."""
    if sampling.mode == "balanced" and sampling.curriculum is None:
        prompts = min(prompts, len(ENVS) * 4)
    whole = TaskSampler(TASKS, prompts, seed, sampling)
    broken = TaskSampler(TASKS, prompts, seed, sampling)
    for number, draws in enumerate(calls):
        if draws:
            assert broken.next_step() == whole.next_step()
        else:
            groups = groups_of(number)
            assert broken.observe(number, groups) == whole.observe(number, groups)
        state = through_a_manifest(broken.state())
        broken = TaskSampler.from_state(
            TASKS, state, prompts_per_step=prompts, seed=seed, sampling=sampling
        )
        assert broken.state() == whole.state()
        assert broken.metrics() == whole.metrics()


def test_a_late_position_costs_no_replay() -> None:
    state = TaskSampler(TASKS, 4, 0).state()
    late: dict[str, JsonValue] = {"epoch": 10**9, "position": 2, "late": []}
    state |= {"step": 10**10, "pools": dict.fromkeys(ENVS, late)}
    sampler = TaskSampler.from_state(TASKS, state, prompts_per_step=4, seed=0)
    assert len(sampler.next_step()) == 4
    assert sampler.metrics()["data/booking/epoch"] == 10**9 - 1 + 3 / 4


def test_a_warning_given_before_the_checkpoint_is_not_given_again() -> None:
    tasks = minifleet_tasks(("booking", "reddit"), "train", {"booking": 1, "reddit": 99}, 0)
    sampling = PromptSampling(mode="proportional")
    sampler = TaskSampler(tasks, 1, 0, sampling)
    for _ in range(UNSAMPLED_AFTER):
        sampler.next_step()
    assert sampler.observe(UNSAMPLED_AFTER, []).unsampled == ("booking",)
    resumed = TaskSampler.from_state(
        tasks, sampler.state(), prompts_per_step=1, seed=0, sampling=sampling
    )
    assert resumed.observe(UNSAMPLED_AFTER + 1, []).unsampled == ()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            PromptSampling(),
            r"drawn with data\.sampling = hybrid: set it to that \(balanced asked for\)",
        ),
        (PromptSampling(mode="hybrid", min_samples_per_env=1), r"data\.min_samples_per_env = 2"),
        (
            PromptSampling(mode="hybrid", min_samples_per_env=2, curriculum=EAGER),
            r"data\.curriculum = None",
        ),
    ],
)
def test_a_position_under_other_settings_is_refused(other: PromptSampling, sentence: str) -> None:
    state = TaskSampler(TASKS, 9, 0, PromptSampling(mode="hybrid", min_samples_per_env=2)).state()
    with pytest.raises(CheckpointError, match=sentence):
        TaskSampler.from_state(TASKS, state, prompts_per_step=9, seed=0, sampling=other)


@pytest.mark.parametrize("part", ["pools", "shares", "settings", "curriculum"])
@pytest.mark.parametrize("value", [None, {}, [], 3], ids=str)
def test_a_malformed_part_of_the_state_is_refused(part: str, value: JsonValue) -> None:
    sampling = PromptSampling(curriculum=EAGER)
    state = TaskSampler(TASKS, 8, 0, sampling).state() | {part: value}
    with pytest.raises(CheckpointError, match="malformed"):
        TaskSampler.from_state(TASKS, state, prompts_per_step=8, seed=0, sampling=sampling)
