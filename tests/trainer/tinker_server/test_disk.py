"""What is kept is whole, under the name it was given, and for as long as it was to be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainer.tinker_server.disk import SAMPLER_WEIGHTS, WEIGHTS, Disk
from trainer.tinker_server.errors import Refused, Unknown

MODEL = "s-1:train:0"


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def write(directory: Path) -> None:
    (directory / "state").write_text("all of it")


def test_what_was_kept_is_found_by_its_path_also_by_the_next_server(tmp_path: Path) -> None:
    path = Disk(tmp_path).keep(MODEL, WEIGHTS, "step-1", write).path
    assert path == f"tinker://{MODEL}/weights/step-1"
    assert (Disk(tmp_path).find(path).directory / "state").read_text() == "all of it"


def test_a_write_that_ends_midway_keeps_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    def half(directory: Path) -> None:
        write(directory)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        disk.keep(MODEL, WEIGHTS, "step-1", half)
    assert disk.checkpoints(MODEL) == []
    again = Disk(tmp_path)
    assert list((tmp_path / "models" / MODEL / WEIGHTS).iterdir()) == []
    assert again.keep(MODEL, WEIGHTS, "step-1", write)


def test_a_name_is_used_once_unless_it_is_to_be_overwritten(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.keep(MODEL, WEIGHTS, "a", write)
    with pytest.raises(Refused, match="weights/a is there already"):
        disk.keep(MODEL, WEIGHTS, "a", write)
    disk.keep(MODEL, SAMPLER_WEIGHTS, "a", write)
    disk.keep(MODEL, WEIGHTS, "a", lambda each: (each / "other").touch(), overwrite=True)
    kept = disk.find(f"tinker://{MODEL}/weights/a").directory
    assert {each.name for each in kept.iterdir()} == {"kept.json", "other"}


def test_what_was_to_last_a_while_is_gone_after_it(tmp_path: Path) -> None:
    clock = Clock()
    disk = Disk(tmp_path, clock)
    short = disk.keep(MODEL, WEIGHTS, "short", write, ttl_s=60)
    disk.keep(MODEL, WEIGHTS, "ever", write)
    clock.now += timedelta(seconds=59)
    assert disk.find(short.path)
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unknown, match="its time is over"):
        disk.find(short.path)
    assert not short.directory.exists()
    assert [each.name for each in disk.checkpoints(MODEL)] == ["ever"]


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".hidden", "x.part", "a" * 201])
def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    disk = Disk(tmp_path / "state")
    with pytest.raises(Refused):
        disk.keep(MODEL, WEIGHTS, name, write)
    with pytest.raises(Refused):
        disk.model(name)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]
