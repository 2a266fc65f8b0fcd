"""What a dead trainer wrote gets into the store, at no more traffic than that."""

from __future__ import annotations

from pathlib import Path

from hillclimb.blobs.disk import DiskStore
from hillclimb.process.tail_upload import TailUploader
from hillclimb.protocol.rundir import AttemptDir


class Watched(DiskStore):
    """Knows whose content was read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return super().get(key)


def test_segments_of_the_log_are_measured_and_not_read(tmp_path: Path) -> None:
    store, attempt_dir = Watched(tmp_path / "blobs"), AttemptDir(tmp_path / "runs" / "run_1", 1)
    attempt_dir.path.mkdir(parents=True)
    for written in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        attempt_dir.log.write_text(written)
        TailUploader(store).upload_tail("run_1", attempt_dir)
    segments = store.list("runs/run_1/attempt-1/logs")
    assert store.read == []
    assert [store.get(key) for key in segments] == [b"one\n", b"two\n", b"three\n"]
