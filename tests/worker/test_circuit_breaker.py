"""A store that is away is asked once in a while, whoever wants something of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hillclimb.blobs.base import BlobMissing, StoreError, StoreRefused
from hillclimb.blobs.disk import DiskStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from tests.worker.run_simulation import RunSimulation
from worker.circuit_breaker import CircuitBreakerStore, CircuitOpen
from worker.deadlines import CIRCUIT_OPEN_S, SLOW_ERROR_S
from worker.runs import relay

PATIENCE = RetryPolicy(total_s=0.0, silence_s=SLOW_ERROR_S + 2.0)


@dataclass(slots=True)
class Time:
    """Moves when it is told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Moody(DiskStore):
    """A directory that, while it has a mood, waits and then fails with it."""

    def __init__(self, root: Path, time: Time) -> None:
        super().__init__(root)
        self.time = time
        self.mood: StoreError | None = None
        self.lasts_s = 8.0
        self.num_asked = 0

    def get(self, key: str) -> bytes:
        self.num_asked += 1
        if self.mood is not None:
            self.time.now += self.lasts_s
            raise self.mood
        return super().get(key)


@pytest.fixture
def moody(tmp_path: Path) -> Moody:
    store = Moody(tmp_path, Time())
    store.put("a", b"1")
    return store


@pytest.fixture
def resting(moody: Moody) -> CircuitBreakerStore:
    return CircuitBreakerStore(moody, clock=moody.time)


def test_a_store_that_gave_no_answer_is_asked_again_after_its_rest(
    moody: Moody, resting: CircuitBreakerStore
) -> None:
    assert resting.get("a") == b"1"
    moody.mood = StoreError("nobody answers")
    with pytest.raises(StoreError, match="nobody answers"):
        resting.get("a")
    moody.mood = None
    for _ in range(100):
        with pytest.raises(CircuitOpen, match="tried again in 30 s"):
            resting.get("a")
    assert moody.num_asked == 2
    moody.time.now += CIRCUIT_OPEN_S
    assert resting.get("a") == b"1"


def test_what_is_answered_at_once_is_no_reason_to_rest(
    moody: Moody, resting: CircuitBreakerStore
) -> None:
    moody.lasts_s = 0.1
    moody.mood = StoreRefused("not with these credentials")
    for _ in range(3):
        with pytest.raises(StoreRefused):
            resting.get("a")
    moody.mood, moody.lasts_s = BlobMissing("b"), 8.0
    for _ in range(3):
        with pytest.raises(BlobMissing):
            resting.get("b")
    assert moody.num_asked == 6


def test_every_question_is_passed_on(moody: Moody, tmp_path: Path) -> None:
    store = CircuitBreakerStore(moody)
    store.check()
    store.put("x/b", b"22")
    assert store.put_if_absent("x/b", b"3") is False
    (tmp_path / "file").write_bytes(b"4444")
    store.put_file("x/c", tmp_path / "file")
    store.get_file("x/c", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"4444"
    assert (store.get_range("x/c", 1, 2), store.size("x/c")) == (b"44", 4)
    assert (store.exists("x/c"), store.exists("x/d")) == (True, False)
    assert store.list("x") == ("x/b", "x/c")
    assert store.local_path("x/c") == moody.local_path("x/c")
    assert store.presign("x/c", method="GET", expires_s=9) is None
    assert store.delete_prefix("x") == 2


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def test_a_silent_store_costs_the_relay_of_many_runs_one_wait(
    sim: RunSimulation, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = open_store(f"s3://runs?endpoint_url=http://127.0.0.1:{silent_port}", PATIENCE)
    sim.register(slots=3)
    for name in "abc":
        sim.reconcile(sim.submit(name))
        assert sim.claim() is not None
    sim.context = replace(sim.context, store=CircuitBreakerStore(store))
    sim.advance(relay.TRAINER_SILENCE_S + 1)
    began = time.monotonic()
    assert relay.sweep(sim.context, now=sim.now) == 0
    assert time.monotonic() - began < 2 * PATIENCE.silence_s
    began = time.monotonic()
    assert relay.sweep(sim.context, now=sim.now) == 0
    assert time.monotonic() - began < PATIENCE.silence_s
