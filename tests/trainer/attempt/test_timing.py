"""Where the seconds go, with a clock that the test sets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainer.attempt.timing import Clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds on the clock, in `now.s`."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr("trainer.attempt.timing.time", SimpleNamespace(perf_counter=lambda: now.s))
    return now


def test_a_part_of_a_phase_counts_once(now: SimpleNamespace) -> None:
    clock = Clock()
    with clock.step():
        with clock.phase("policy_train"):
            now.s += 5.0
        clock.split("policy_train", "fwd_logprobs_values_reward", 2.0)
    assert clock.take() == {
        "timing/step": 5.0,
        "timing/policy_train": 3.0,
        "timing/fwd_logprobs_values_reward": 2.0,
    }
    assert clock.take() == {}


def test_a_phase_in_two_blocks_is_one_sum(now: SimpleNamespace) -> None:
    clock = Clock()
    for seconds in (1.0, 2.0):
        with clock.phase("convert_to_training_input"):
            now.s += seconds
    assert clock.take() == {"timing/convert_to_training_input": 3.0}
