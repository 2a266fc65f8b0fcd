"""Buckets in a file are those of every process that has mapped it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from api.http.live.serving.bucket_table import PLACES, SETS, BucketTable
from api.http.requests.limits.buckets import Buckets


@pytest.fixture
def path(tmp_path: Path) -> Path:
    BucketTable.create(tmp_path / "limits")
    return tmp_path / "limits"


@pytest.fixture
def pair(path: Path) -> Iterator[tuple[BucketTable, BucketTable]]:
    """The file as two processes have it: each has opened it by itself."""
    with ExitStack() as opened:
        first, second = (opened.enter_context(closing(BucketTable.shared(path))) for _ in "ab")
        yield first, second


def buckets(table: BucketTable, kind: str = "", now: float = 5.0, burst: float = 3.0) -> Buckets:
    return Buckets(per_minute=60, burst_s=burst, table=table, kind=kind, clock=lambda: now)


def test_two_processes_take_from_one_bucket(pair: tuple[BucketTable, BucketTable]) -> None:
    here, there = (buckets(table) for table in pair)
    assert [here.take("a"), there.take("a"), here.take("a")] == [0, 0, 0]
    assert there.take("a") == here.wait_s("a") == pytest.approx(1.0)
    assert there.wait_s("b") == 0
    assert buckets(pair[1], kind="other").take("a") == 0
    assert buckets(pair[1], now=6.0).take("a") == 0
    # A clock that was read before, by a process that comes after, gives nothing back.
    assert here.take("a") == pytest.approx(1.0)


def test_of_many_requests_at_once_exactly_the_burst_is_accepted(
    pair: tuple[BucketTable, BucketTable],
) -> None:
    def take(table: BucketTable) -> int:
        return sum(buckets(table, burst=500.0).take("a") == 0 for _ in range(400))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(take, [*pair, *pair])) == 500


def test_a_process_that_stops_with_the_lock_stops_no_other(
    path: Path, pair: tuple[BucketTable, BucketTable]
) -> None:
    stopped = os.open(path, os.O_RDWR)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    begun = time.monotonic()
    assert [buckets(pair[0]).take("a") for _ in range(4)][:3] == [0, 0, 0]
    assert buckets(pair[1]).take("a") > 0
    assert time.monotonic() - begun < 10
    os.close(stopped)


def test_where_there_is_no_place_the_bucket_that_was_quiet_for_longest_is_forgotten() -> None:
    table = BucketTable.private()
    names = [name for name in map(str, range(200_000)) if _set_of(table, name) == 0][: PLACES + 3]
    for number, name in enumerate(names):
        table.update(name, lambda *_, at=float(number): (0.5, at))
    first = names[3]
    table.update(first, lambda *_: (0.5, 100.0))
    table.update(names[0], lambda *_: (0.5, 101.0))
    remembered = [name for name in names if table.read(name)[0] == 0.5]
    assert remembered == [names[0], first, *names[5:]]
    table.close()


def _set_of(table: BucketTable, name: str) -> int:
    return int.from_bytes(table._digest(name)[:4], "little") % SETS


def test_the_place_of_a_name_is_known_to_nobody_else(tmp_path: Path) -> None:
    for name in "ab":
        BucketTable.create(tmp_path / name)
    first, second = (BucketTable.shared(tmp_path / name) for name in "ab")
    assert first.key != second.key
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    first.close()
    second.close()
