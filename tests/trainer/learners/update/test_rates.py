"""The learning rate over a run."""

from __future__ import annotations

import pytest

from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.learners.update.rates import RateSchedule


def rates(**settings: object) -> list[float]:
    spec = OptimizerSpec.model_validate({"lr": 1.0} | settings)
    schedule = RateSchedule(optimizer=spec, total_steps=4)
    return [schedule.at(step=step, update=step) for step in range(5)]


def test_constant_stays() -> None:
    assert rates() == [1.0] * 5


def test_linear_falls_to_its_floor_and_the_last_step_is_above_it() -> None:
    assert rates(lr_scheduler="linear") == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])
    floored = rates(lr_scheduler="linear", min_lr_ratio=0.2)
    assert floored == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_cosine_is_slow_at_both_ends() -> None:
    assert rates(lr_scheduler="cosine") == pytest.approx(
        [1.0, 0.853553, 0.5, 0.146447, 0.0], abs=1e-6
    )
    assert rates(lr_scheduler="cosine", min_lr_ratio=0.5)[2] == pytest.approx(0.75)


def test_after_the_last_step_the_rate_stays_at_the_floor() -> None:
    spec = OptimizerSpec(lr=1.0, lr_scheduler="cosine", min_lr_ratio=0.1)
    schedule = RateSchedule(optimizer=spec, total_steps=4)
    assert schedule.at(step=9, update=9) == pytest.approx(0.1)


def test_warm_up_counts_optimizer_steps_and_multiplies_the_fall() -> None:
    spec = OptimizerSpec(lr=1.0, lr_scheduler="linear")
    schedule = RateSchedule(optimizer=spec, warmup_updates=4, total_steps=2)
    found = [schedule.at(step=step, update=update) for step, update in ((0, 0), (0, 1), (1, 3))]
    assert found == pytest.approx([0.25, 0.5, 0.5])
