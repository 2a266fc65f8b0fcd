"""What is counted of a process that dies and is started again."""

from __future__ import annotations

from trainer.engines.base import EngineStats
from trainer.placement.lives import Counters, Lives


def stats(tokens: int, busy_s: float, blocked_s: float = 0.0) -> EngineStats:
    return EngineStats(
        num_sampled_tokens=tokens,
        num_prefill_tokens=2 * tokens,
        num_cached_tokens=3 * tokens,
        busy_s=busy_s,
        loop_blocked_s=blocked_s,
    )


def test_counters_go_on_over_lives_and_late_answers() -> None:
    counters = Counters()
    counters.told(stats(10, 1.0))
    counters.told(stats(30, 3.0))
    counters.told(stats(20, 2.0))
    assert counters.total == stats(30, 3.0)
    counters.begin_life()
    assert counters.total == stats(30, 3.0)
    counters.told(stats(5, 0.5, blocked_s=9.0))
    assert counters.total == stats(35, 3.5)
    counters.begin_life()
    counters.told(stats(1, 0.25))
    assert counters.total == stats(36, 3.75)


def test_another_process_is_noted_once() -> None:
    noted: list[str] = []
    lives = Lives(lambda: noted.append("restart"))
    assert [lives.seen(life) for life in ("a", "a", "b", "b", "c")] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert noted == ["restart", "restart"]
