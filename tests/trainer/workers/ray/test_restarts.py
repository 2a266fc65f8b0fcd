"""What is counted of a process that dies and is started again."""

from __future__ import annotations

from trainer.engines.base import EngineStats
from trainer.workers.ray.restarts import CumulativeStats, RestartTracker


def stats(tokens: int, busy_s: float, blocked_s: float = 0.0) -> EngineStats:
    return EngineStats(
        num_sampled_tokens=tokens,
        num_prefill_tokens=2 * tokens,
        num_cached_tokens=3 * tokens,
        busy_s=busy_s,
        num_attended_pairs=4 * tokens,
        loop_blocked_s=blocked_s,
    )


def test_counters_go_on_over_lives_and_late_answers() -> None:
    cumulative = CumulativeStats()
    cumulative.update(stats(10, 1.0))
    cumulative.update(stats(30, 3.0))
    cumulative.update(stats(20, 2.0))
    assert cumulative.total == stats(30, 3.0)
    cumulative.reset()
    assert cumulative.total == stats(30, 3.0)
    cumulative.update(stats(5, 0.5, blocked_s=9.0))
    assert cumulative.total == stats(35, 3.5)
    cumulative.reset()
    cumulative.update(stats(1, 0.25))
    assert cumulative.total == stats(36, 3.75)


def test_another_process_is_noted_once() -> None:
    noted: list[str] = []
    tracker = RestartTracker(lambda: noted.append("restart"))
    assert [tracker.observe(incarnation) for incarnation in ("a", "a", "b", "b", "c")] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert noted == ["restart", "restart"]
