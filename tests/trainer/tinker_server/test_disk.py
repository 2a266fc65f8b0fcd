"""What is kept is whole, under the name it was given, and for as long as it was to be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainer.tinker_server.disk import (
    SAMPLER_WEIGHTS,
    WEIGHTS,
    Disk,
    ModelRecord,
    SamplerRecord,
)
from trainer.tinker_server.errors import RequestRefused, StateInUse, Unknown
from trainer.tinker_server.wire import Lora

MODEL = "s-1:train:0"


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def write(directory: Path) -> None:
    (directory / "state").write_text("all of it")


def test_what_was_kept_is_found_by_its_path_also_by_the_next_server(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    path = disk.save(MODEL, WEIGHTS, "step-1", write).path
    disk.close()
    assert path == f"tinker://{MODEL}/weights/step-1"
    assert (Disk(tmp_path).find(path).directory / "state").read_text() == "all of it"


def test_a_write_that_ends_midway_keeps_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    def half(directory: Path) -> None:
        write(directory)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        disk.save(MODEL, WEIGHTS, "step-1", half)
    assert disk.checkpoints(MODEL) == []
    disk.close()
    again = Disk(tmp_path)
    assert list((tmp_path / "models" / MODEL / WEIGHTS).iterdir()) == []
    assert again.save(MODEL, WEIGHTS, "step-1", write)


def test_a_name_is_used_once_unless_it_is_to_be_overwritten(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.save(MODEL, WEIGHTS, "a", write)
    with pytest.raises(RequestRefused, match="weights/a exists already"):
        disk.save(MODEL, WEIGHTS, "a", write)
    disk.save(MODEL, SAMPLER_WEIGHTS, "a", write)
    disk.save(MODEL, WEIGHTS, "a", lambda each: (each / "other").touch(), overwrite=True)
    kept = disk.find(f"tinker://{MODEL}/weights/a").directory
    assert {each.name for each in kept.iterdir()} == {"kept.json", "other"}


def test_what_was_to_last_a_while_is_gone_after_it(tmp_path: Path) -> None:
    clock = Clock()
    disk = Disk(tmp_path, clock)
    short = disk.save(MODEL, WEIGHTS, "short", write, ttl_s=60)
    disk.save(MODEL, WEIGHTS, "ever", write)
    clock.now += timedelta(seconds=59)
    assert disk.find(short.path)
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unknown, match="its time is over"):
        disk.find(short.path)
    assert not short.directory.exists()
    assert [each.name for each in disk.checkpoints(MODEL)] == ["ever"]


def test_of_what_nobody_asks_for_again_nothing_stays(tmp_path: Path) -> None:
    clock = Clock()
    disk = Disk(tmp_path, clock)
    lora = Lora(rank=4)
    disk.add_model(ModelRecord(model_id=MODEL, base_model="a", lora=lora, created_at=Clock.now))
    short = disk.save(MODEL, SAMPLER_WEIGHTS, "session-0", write, ttl_s=60)
    ever = disk.save(MODEL, SAMPLER_WEIGHTS, "named", write)
    for name, path in (("s-1:sample:0", short.path), ("s-1:sample:1", ever.path), ("base", None)):
        disk.add_sampler(SamplerRecord(sampler_id=name, base_model="a", model_path=path))
    disk.sweep()
    assert disk.sampler("s-1:sample:0")
    clock.now += timedelta(seconds=60)
    disk.sweep()
    assert not short.directory.exists()
    with pytest.raises(Unknown):
        disk.sampler("s-1:sample:0")
    assert disk.sampler("s-1:sample:1").model_path == ever.path
    assert disk.sampler("base")


def test_two_servers_do_not_write_to_one_directory(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    with pytest.raises(StateInUse, match=r"another Tinker server writes to .* another --state-dir"):
        Disk(tmp_path)
    first.close()
    Disk(tmp_path).close()


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".hidden", "x.part", "a" * 201])
def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    disk = Disk(tmp_path / "state")
    with pytest.raises(RequestRefused):
        disk.save(MODEL, WEIGHTS, name, write)
    with pytest.raises(RequestRefused):
        disk.model(name)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_whoever_looks_while_something_is_kept_or_deleted_finds_what_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling looks up paths while a learner saves, whose folder was found and had moved."""
    disk = Disk(tmp_path)
    disk.save(MODEL, WEIGHTS, "old", write)
    seen: list[set[str]] = []
    rename, read = Path.rename, Path.read_bytes

    def looking(self: Path, target: Path) -> Path:
        seen.append({each.name for each in disk.checkpoints(MODEL)})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", looking)
    disk.save(MODEL, WEIGHTS, "new", write)
    assert seen
    assert set.union(*seen) <= {"old", "new"}
    monkeypatch.setattr(Path, "rename", rename)

    def deleted(self: Path) -> bytes:
        if self.parent.name == "old":
            self.unlink()
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", deleted)
    assert [each.name for each in disk.checkpoints(MODEL)] == ["new"]
