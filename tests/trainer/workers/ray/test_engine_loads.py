"""A group goes to the engine with the least work, stays there, and gives it back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from trainer.workers.ray import engine_loads
from trainer.workers.ray.engine_loads import EngineLoads


def test_groups_that_start_at_once_are_spread_evenly() -> None:
    loads = EngineLoads(4)
    with ExitStack() as rollouts:
        for group in range(24):
            engines = {rollouts.enter_context(loads.place(group, 4)) for _ in range(4)}
            assert len(engines) == 1, "the rollouts of a group share a prompt"
        assert loads.loads == (24, 24, 24, 24)
    assert loads.loads == (0, 0, 0, 0)


def test_an_engine_whose_rollouts_end_gets_the_next_group() -> None:
    loads = EngineLoads(2)
    with ExitStack() as slow:
        assert slow.enter_context(loads.place("slow", 1)) == 0
        for number in range(5):
            with loads.place(number, 1) as engine:
                assert engine == 1


def test_a_group_counts_with_the_rollouts_that_are_still_to_come() -> None:
    loads = EngineLoads(2)
    with loads.place("large", 8), loads.place("small", 2):
        assert loads.loads == (8, 2)
        with loads.place("third", 4) as engine:
            assert engine == 1


def test_a_sibling_that_starts_later_finds_its_group() -> None:
    """With a limit of rollouts at a time, also after all earlier ones have ended."""
    loads = EngineLoads(2)
    with loads.place("a", 3) as first:
        pass
    with loads.place("b", 3):
        pass
    assert loads.loads == (2, 2)
    with loads.place("a", 3) as again:
        assert again == first


def test_a_rollout_that_fails_gives_its_share_back() -> None:
    loads = EngineLoads(2)
    with pytest.raises(RuntimeError), loads.place("a", 1):
        raise RuntimeError("the engine died")
    assert loads.loads == (0, 0)


def test_groups_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_loads, "MAX_GROUPS", 2)
    loads = EngineLoads(1)
    with loads.place("oldest", 4):
        for group in ("b", "c"):
            with loads.place(group, 4):
                pass
        assert loads.loads == (6,)
    assert loads.loads == (6,)
