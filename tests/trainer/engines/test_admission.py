"""Who gets room in an engine's cache, in which order, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.trainer.engines.torch.test_torch import engine_of, params
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from trainer.engines import admission
from trainer.engines.admission import UNLIMITED, CacheAdmission, CacheClaim
from trainer.engines.base import EngineStats
from trainer.engines.torch.engine import TorchEngine
from trainer.errors import EngineError

IDLE = EngineStats(num_sampled_tokens=0, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0)


class Line:
    """The claims of sessions on one cache, and in which order they were admitted."""

    def __init__(self, num_tokens: int, *, block: int = 1) -> None:
        self.admission = CacheAdmission(num_tokens, block=block)
        self.admitted: list[str] = []
        self.calls: dict[str, asyncio.Task[None]] = {}

    async def ask(
        self, session: str, own: int, *, group: str = "", shared: int = 0, evaluates: bool = False
    ) -> None:
        claim = CacheClaim(
            session=session, group=group, num_shared=shared, num_own=own, is_evaluation=evaluates
        )

        async def wait() -> None:
            await self.admission.admit(claim)
            self.admitted.append(session)

        self.calls[session] = asyncio.create_task(wait())
        await settle()

    async def end(self, *sessions: str) -> None:
        for session in sessions:
            self.admission.release(session)
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough that no test but that of idleness depends on it."""
    monkeypatch.setattr(admission, "IDLE_S", 3600.0)


async def test_rollouts_wait_until_one_ends() -> None:
    line = Line(100)
    for name in "abc":
        await line.ask(name, 40)
    assert line.admitted == ["a", "b"]
    assert (line.admission.num_reserved, line.admission.num_waiting) == (80, 1)
    await line.end("a")
    assert line.admitted == ["a", "b", "c"]
    await line.end("b", "c")
    assert line.admission.num_reserved == 0


async def test_one_rollout_alone_is_let_in_however_long_it_is() -> None:
    line = Line(100)
    await line.ask("long", 500)
    assert line.admitted == ["long"]
    await line.ask("short", 1)
    assert line.admitted == ["long"]
    await line.end("long")
    assert line.admitted == ["long", "short"]


async def test_a_shared_prompt_counts_once_and_as_long_as_any_sibling_has_room() -> None:
    line = Line(100)
    for name in "abcd":
        await line.ask(name, 10, group="g", shared=60)
    assert line.admitted == [*"abcd"]
    assert line.admission.num_reserved == 100
    await line.end("a", "b", "c")
    assert line.admission.num_reserved == 70
    await line.end("d")
    assert line.admission.num_reserved == 0


async def test_what_is_reserved_are_whole_blocks() -> None:
    line = Line(96, block=32)
    await line.ask("a", 33)
    assert line.admission.num_reserved == 64
    await line.ask("b", 33)
    assert line.admitted == ["a"]


async def test_a_short_rollout_does_not_overtake_a_long_one() -> None:
    line = Line(100)
    await line.ask("a", 80)
    await line.ask("long", 60)
    await line.ask("short", 10)
    assert line.admitted == ["a"]
    await line.end("a")
    assert line.admitted == ["a", "long", "short"]


async def test_begun_rollouts_come_before_evaluations_and_these_before_new_groups() -> None:
    line = Line(100)
    await line.ask("a1", 50, group="a")
    await line.ask("b1", 50, group="b")
    await line.ask("c1", 50, group="c")
    await line.ask("b2", 50, group="b")
    await line.ask("eval", 50, evaluates=True)
    await line.ask("a1", 60, group="a")
    await line.end("b1")
    assert line.admitted == ["a1", "b1", "a1"]
    await line.end("a1")
    assert line.admitted[3:] == ["eval", "b2"], "the group that began first goes on first"


async def test_the_oldest_of_those_who_wait_for_more_takes_the_room_of_the_youngest() -> None:
    """Otherwise each would wait for the others: a deadlock."""
    line = Line(90)
    for name in "abc":
        await line.ask(name, 30)
    for name in "cab":
        await line.ask(name, 60)
    assert line.admitted == ["a", "b", "c", "a"]
    assert line.admission.num_reserved <= 90
    await line.end("a")
    assert line.admitted[4:] == ["b"]
    await line.end("b")
    assert line.admitted[5:] == ["c"]
    await line.end("c")
    assert line.admission.num_reserved == 0


async def test_a_claim_that_is_repeated_needs_no_room() -> None:
    """Ray repeats the calls of an engine that died, and an overfull cache grants them too."""
    line = Line(10)
    await line.ask("a", 50)
    await line.ask("a", 50)
    await line.ask("a", 20)
    assert line.admitted == ["a", "a", "a"]
    assert line.admission.num_reserved == 50


async def test_a_cancelled_wait_lets_the_next_one_in() -> None:
    line = Line(100)
    await line.ask("a", 60)
    await line.ask("long", 90)
    await line.ask("short", 40)
    line.calls["long"].cancel()
    await settle()
    assert line.admitted == ["a", "short"]


async def test_a_released_session_stops_waiting() -> None:
    line = Line(100)
    await line.ask("a", 100)
    await line.ask("b", 10)
    await line.end("b")
    with pytest.raises(EngineError, match="session b was released"):
        await line.calls["b"]
    await line.end("a")
    assert (line.admission.num_reserved, line.admission.num_waiting) == (0, 0)
    assert not line.admission._groups


async def test_an_idle_engine_admits_the_first_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the room may have died without a word."""
    monkeypatch.setattr(admission, "IDLE_S", 0.01)
    line = Line(100)
    await line.ask("died", 100)
    with line.admission.sampling():
        await line.ask("b", 50)
        await asyncio.sleep(0.05)
        assert line.admitted == ["died"], "an engine with a request is not idle"
    async with asyncio.timeout(5.0):
        await line.calls["b"]
    assert line.admitted == ["died", "b"]


async def test_room_for_all_is_said_once() -> None:
    roomy = CacheAdmission(1000, most=1000)
    assert await roomy.admit(CacheClaim(session="a", num_own=500)) == UNLIMITED
    assert roomy.num_reserved == 0
    assert roomy.add_to(IDLE) == IDLE


async def test_waits_and_reserved_tokens_are_counted() -> None:
    line = Line(100)
    await line.ask("a", 80)
    with line.admission.sampling():
        await line.ask("b", 80)
        await asyncio.sleep(0.02)
    await line.end("a")
    stats = line.admission.add_to(IDLE)
    assert (stats.num_cache_tokens, stats.num_cache_waits) == (100, 1)
    assert stats.cache_wait_s >= 0.02
    assert stats.reserved_token_s == pytest.approx(80 * stats.cache_wait_s, rel=0.5)


@pytest.fixture
async def engine() -> AsyncIterator[TorchEngine]:
    made = engine_of(tiny_model(), num_sessions=2)
    yield made
    await made.close()


async def play(engine: TorchEngine, name: str, *, admitted: bool, turns: int = 4) -> int:
    """An episode of several turns; returns the tokens that it had in the end."""
    ids, granted = random_ids(20, seed=len(name)), 0
    for turn in range(turns):
        if admitted and granted < len(ids) + 8:
            granted = await engine.admit(CacheClaim(session=name, num_own=len(ids) + 8))
        sample = await engine.sample(ids, params(seed=turn), session=name, prefix_key="")
        ids = [*ids, *sample.token_ids, *random_ids(3, seed=turn)]
        await settle()  # as during a call of a tool
    engine.release(name)
    return len(ids) - 3


@pytest.mark.parametrize("admitted", [True, False])
async def test_admitted_rollouts_compute_every_token_once(
    engine: TorchEngine, admitted: bool
) -> None:
    """Six rollouts on two rows: without admission each turn finds its row taken."""
    lengths = await asyncio.gather(
        *(play(engine, f"s{number}", admitted=admitted) for number in range(6))
    )
    stats = engine.stats()
    num_computed = stats.num_prefill_tokens + stats.num_sampled_tokens
    # The last token that a turn draws is computed by the next one.
    at_least = sum(lengths) + 6 * 3
    assert (num_computed == at_least) is admitted
    assert (stats.num_cache_waits > 0) is admitted
