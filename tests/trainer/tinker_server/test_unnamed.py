"""Weights of unnamed sampling sessions: the disk they may take, and how they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.trainer.tinker_server.test_disk import MODEL, Clock
from trainer.tinker_server.disk import SAMPLER_WEIGHTS, Disk, ModelRecord, SavedState
from trainer.tinker_server.errors import Unknown
from trainer.tinker_server.unnamed import TTL_S, UnnamedWeights
from trainer.tinker_server.wire import Lora


def write(directory: Path) -> None:
    (directory / "weights").write_bytes(b"a" * 1000)


def a_disk(root: Path, clock: Clock) -> Disk:
    disk = Disk(root, clock)
    record = ModelRecord(
        model_id=MODEL, base_model="a", lora=Lora(rank=4), created_at=datetime.now(UTC)
    )
    disk.add_model(record)
    return disk


def there(disk: Disk, *saved: SavedState) -> list[bool]:
    kept = {each.path for each in disk.checkpoints(MODEL)}
    return [each.path in kept for each in saved]


async def test_beyond_the_limit_the_least_recently_used_go_and_named_ones_stay(
    tmp_path: Path,
) -> None:
    disk = a_disk(tmp_path, Clock())
    unnamed = UnnamedWeights(disk, max_bytes=3500)
    named = disk.save(MODEL, SAMPLER_WEIGHTS, "session-0", write)
    reference, *others = [await unnamed.save(MODEL, number, write) for number in range(2)]
    for number in range(2, 6):
        unnamed.use(reference)
        others.append(await unnamed.save(MODEL, number, write))
    assert there(disk, named, reference, others[-1]) == [True] * 3
    assert there(disk, *others[:2]) == [False] * 2


async def test_one_alone_stays_however_large_it_is(tmp_path: Path) -> None:
    disk = a_disk(tmp_path, Clock())
    unnamed = UnnamedWeights(disk, max_bytes=10)
    first, second = [await unnamed.save(MODEL, number, write) for number in range(2)]
    assert there(disk, first, second) == [False, True]


async def test_the_next_server_knows_them_and_a_used_one_lasts_longer(tmp_path: Path) -> None:
    clock = Clock()
    disk = a_disk(tmp_path, clock)
    unnamed = UnnamedWeights(disk, max_bytes=9000)
    used, unused = [await unnamed.save(MODEL, number, write) for number in range(2)]
    disk.close()
    disk = Disk(tmp_path, clock)
    unnamed = UnnamedWeights(disk, max_bytes=9000)
    for _ in range(4):
        clock.now += timedelta(seconds=0.4 * TTL_S)
        unnamed.use(disk.find(used.path))
    assert there(disk, used, unused) == [True, False]
    with pytest.raises(Unknown, match="its time is over"):
        disk.find(unused.path)


async def test_those_of_a_session_end_with_it(tmp_path: Path) -> None:
    disk = a_disk(tmp_path, Clock())
    unnamed = UnnamedWeights(disk, max_bytes=9000)
    own = await unnamed.save(MODEL, 0, write)
    named = disk.save(MODEL, SAMPLER_WEIGHTS, "step-1", write)
    # Deleted by its client: nothing to do for the end of the session.
    disk.delete(await unnamed.save(MODEL, 1, write))
    unnamed.end("s-11")
    assert there(disk, own, named) == [True, True]
    unnamed.end("s-1")
    assert there(disk, own, named) == [False, True]
