import errno
import hashlib
import threading
from pathlib import Path

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import AttemptDir
from trainer.errors import AttemptSuperseded, CheckpointError, StorageFull
from trainer.jobs.train.checkpoints import (
    Checkpoints,
    Position,
    complete_checkpoints,
    fetch,
    find_latest,
    read_saved,
)


def no_objection() -> None:
    return


class Fixture:
    def __init__(self, root: Path) -> None:
        self.store = DiskStore(root / "blobs")
        self.run_dir = root / "runs" / "run_1"

    def checkpoints(self, attempt: int = 1, **options: object) -> Checkpoints:
        return Checkpoints(
            self.store,
            AttemptDir(self.run_dir, attempt),
            config_hash=str(options.get("config_hash", "c0ffee")),
            parent=None,
            still_current=options.get("still_current", no_objection),  # type: ignore[arg-type]
        )


@pytest.fixture
def here(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def at(step: int, *, final: bool = False) -> Position:
    return Position(step=step, sampler={"step": step}, buffer={}, evaluated_step=None, final=final)


def away(key: str) -> bytes:
    raise StoreError(f"blob {key!r}: connection refused")


def write(directory: Path) -> None:
    (directory / "policy").mkdir()
    (directory / "policy" / "weights").write_bytes(b"w" * 1000)
    (directory / "learner.pt").write_bytes(b"state")


def test_what_is_saved_is_fetched_and_checked(here: Fixture, tmp_path: Path) -> None:
    saved = here.checkpoints().save(at(5), write)
    assert saved.path == "checkpoints/global_step_5/attempt-1"
    assert saved.key == f"runs/run_1/{saved.path}"
    assert saved.manifest.size_bytes == 1005
    found = fetch(here.store, saved.key, tmp_path / "here")
    assert found.manifest == saved.manifest
    assert (tmp_path / "here" / "policy" / "weights").read_bytes() == b"w" * 1000
    assert found.manifest.sampler == {"step": 5}


def test_the_local_copy_is_deleted_once_the_store_has_the_manifest(here: Fixture) -> None:
    local = here.run_dir / "checkpoints"
    seen: list[bool] = []

    def current() -> None:
        """Asked right before the manifest is put."""
        seen.append((local / "global_step_5" / "attempt-1" / "learner.pt").exists())

    here.checkpoints(still_current=current).save(at(5), write)
    assert seen == [True]
    assert list(local.iterdir()) == []


def test_the_local_copy_stays_where_the_store_does_not_take_the_manifest(
    here: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise StoreError("no answer")

    monkeypatch.setattr(DiskStore, "put_if_absent", refuse)
    with pytest.raises(StoreError):
        here.checkpoints().save(at(5), write)
    local = here.run_dir / "checkpoints" / "global_step_5" / "attempt-1"
    assert (local / "policy" / "weights").read_bytes() == b"w" * 1000


def test_what_an_earlier_attempt_could_not_store_stays_until_a_later_step_is_stored(
    here: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskStore, "put_if_absent", lambda *_: away("manifest"))
    with pytest.raises(StoreError):
        here.checkpoints().save(at(5), write)
    AttemptDir(here.run_dir, 1).path.mkdir()
    AttemptDir(here.run_dir, 1).exit.write_bytes(b"")
    monkeypatch.undo()
    kept = here.run_dir / "checkpoints" / "global_step_5" / "attempt-1"
    here.checkpoints(2).save(at(4), write)
    assert (kept / "policy" / "weights").exists()
    here.checkpoints(2).save(at(5), write)
    assert not kept.exists()


def test_a_store_that_goes_away_once_it_has_the_manifest_has_the_checkpoint(
    here: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here.store, "get", away)
    saved = here.checkpoints().save(at(5), write)
    monkeypatch.undo()
    assert read_saved(here.store, saved.key) == saved
    assert list((here.run_dir / "checkpoints").iterdir()) == []


def test_of_what_the_store_does_not_take_only_the_newest_stays_on_the_disk(
    here: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(here.store, "put_file", refuse)
    for step in (5, 10, 15):
        with pytest.raises(StoreError):
            here.checkpoints().save(at(step), write)
    left = (here.run_dir / "checkpoints").iterdir()
    assert [path.name for path in left] == ["global_step_15"]


def test_parts_without_a_manifest_are_no_checkpoint(here: Fixture, tmp_path: Path) -> None:
    saved = here.checkpoints().save(at(5), write)
    torn = here.checkpoints().save(at(6), write)
    here.store.delete_prefix(f"{torn.key}/manifest.json")
    assert find_latest(here.store, "run_1") == saved.key
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        fetch(here.store, torn.key, tmp_path / "here")


def test_the_newest_is_the_highest_step_of_the_latest_attempt(here: Fixture) -> None:
    """As the service has it (`api.runs.store.newest_checkpoint`)."""
    assert find_latest(here.store, "run_1") is None
    for attempt, step in ((1, 9), (1, 30), (2, 10), (2, 9)):
        here.checkpoints(attempt).save(at(step), write)
    assert find_latest(here.store, "run_1") == ("runs/run_1/checkpoints/global_step_10/attempt-2")


def test_an_attempt_cut_off_from_the_service_pushes_out_nothing_of_its_successor(
    here: Fixture,
) -> None:
    here.checkpoints(1).save(at(30), write)
    kept = here.checkpoints(2).save(at(20), write)
    assert list(here.checkpoints(2).prune(1)) == ["checkpoints/global_step_30/attempt-1"]
    here.checkpoints(1).save(at(40), write)
    list(here.checkpoints(1).prune(1))
    assert complete_checkpoints(here.store, "run_1") == (kept.key,)


@pytest.mark.parametrize("damage", [b"w" * 999, b"v" + b"w" * 999])
def test_a_file_of_another_size_or_content_is_refused(
    here: Fixture, tmp_path: Path, damage: bytes
) -> None:
    saved = here.checkpoints().save(at(5), write)
    here.store.put(f"{saved.key}/policy/weights", damage)
    with pytest.raises(CheckpointError, match="does not match its manifest"):
        fetch(here.store, saved.key, tmp_path / "here")


def test_a_checkpoint_that_was_replaced_in_the_store_is_not_opened(
    here: Fixture, tmp_path: Path
) -> None:
    """Manifest and files fit each other, but are not what the service has noted."""
    saved = here.checkpoints().save(at(5), write)
    noted = {saved.key: saved.manifest_sha256}
    assert fetch(here.store, saved.key, tmp_path / "good", manifests=noted) == saved
    here.store.delete_prefix(saved.key)
    forged = here.checkpoints().save(at(5), lambda folder: (folder / "x").write_text("payload"))
    assert fetch(here.store, forged.key, tmp_path / "unasked") == forged
    with pytest.raises(CheckpointError, match=r"manifest\.json is not the one that was saved"):
        fetch(here.store, forged.key, tmp_path / "here", manifests=noted)
    assert not (tmp_path / "here").exists()


def test_a_checkpoint_that_the_service_does_not_know_is_not_opened(
    here: Fixture, tmp_path: Path
) -> None:
    """Else an older one, planted beside, would be the way around the digest."""
    planted = here.checkpoints().save(at(4), write)
    with pytest.raises(CheckpointError, match="is no checkpoint that the service knows"):
        fetch(here.store, planted.key, tmp_path / "here", manifests={})


def test_a_missing_file_and_an_unreadable_manifest_are_refused(
    here: Fixture, tmp_path: Path
) -> None:
    saved = here.checkpoints().save(at(5), write)
    here.store.delete_prefix(f"{saved.key}/learner.pt")
    with pytest.raises(CheckpointError, match=r"lacks learner\.pt"):
        fetch(here.store, saved.key, tmp_path / "here")
    here.store.put(f"{saved.key}/manifest.json", b"{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_saved(here.store, saved.key)


def test_a_store_that_is_away_says_nothing_about_a_checkpoint(
    here: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = here.checkpoints().save(at(5), write)
    monkeypatch.setattr(here.store, "get", away)
    with pytest.raises(StoreError, match="connection refused"):
        fetch(here.store, saved.key, tmp_path / "here")


def test_a_complete_checkpoint_is_never_written_again(here: Fixture) -> None:
    first = here.checkpoints().save(at(5), write)

    def write_other(directory: Path) -> None:
        (directory / "learner.pt").write_bytes(b"other")

    assert here.checkpoints().save(at(5), write_other) == first
    assert here.store.get(f"{first.key}/learner.pt") == b"state"
    with pytest.raises(CheckpointError, match="another configuration"):
        here.checkpoints(config_hash="decaf").save(at(5), write_other)


def test_pruning_keeps_the_newest_here_and_in_the_store(here: Fixture) -> None:
    for step in (1, 2, 3):
        here.checkpoints().save(at(step), write)
    assert list(here.checkpoints().prune(2)) == ["checkpoints/global_step_1/attempt-1"]
    assert len(complete_checkpoints(here.store, "run_1")) == 2
    assert not (here.run_dir / "checkpoints" / "global_step_1" / "attempt-1").exists()
    assert list(here.checkpoints().prune(2)) == []


def test_pruning_removes_what_saves_that_were_cut_short_left_in_the_store(here: Fixture) -> None:
    torn = [here.checkpoints(attempt).save(at(7), write) for attempt in (1, 2, 3)]
    for each in torn:
        here.store.delete_prefix(f"{each.key}/manifest.json")
    kept = here.checkpoints(2).save(at(8), write)
    told = [f"checkpoints/global_step_7/attempt-{attempt}" for attempt in (1, 2)]
    assert list(here.checkpoints(2).prune(1)) == told, "it may be a deletion that was cut short"
    left = {key.rpartition("/policy/")[0] for key in here.store.list("runs/run_1/checkpoints")}
    assert left - {""} == {kept.key, torn[2].key}, "attempt 3 may still be writing"


def test_a_superseded_attempt_prunes_nothing(here: Fixture) -> None:
    is_current = [True, True, True, False]

    def current() -> None:
        if not is_current.pop(0):
            raise AttemptSuperseded("a newer attempt owns the run")

    ours = here.checkpoints(still_current=current)
    for step in (1, 2, 3):
        ours.save(at(step), write)
    with pytest.raises(AttemptSuperseded):
        list(ours.prune(1))
    assert len(complete_checkpoints(here.store, "run_1")) == 3


def test_a_superseded_attempt_completes_no_checkpoint(here: Fixture) -> None:
    def superseded() -> None:
        raise AttemptSuperseded("a newer attempt owns the run")

    with pytest.raises(AttemptSuperseded):
        here.checkpoints(still_current=superseded).save(at(5), write)
    assert find_latest(here.store, "run_1") is None


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("PytorchStreamWriter failed writing file: No space left on device"),
    ],
)
def test_a_full_disk_is_storage_full_whoever_reports_it(here: Fixture, error: Exception) -> None:
    def fail(_: Path) -> None:
        raise error

    with pytest.raises(StorageFull, match="no space left"):
        here.checkpoints().save(at(5), fail)
    assert find_latest(here.store, "run_1") is None


def test_other_failures_of_the_store_stay_what_they_are(here: Fixture) -> None:
    here.store.put("runs/run_1/checkpoints/global_step_5", b"a file in the way")
    with pytest.raises(StoreError):
        here.checkpoints().save(at(5), write)


def test_a_deletion_leaves_the_checkpoint_alone_that_is_being_saved(here: Fixture) -> None:
    """A trial that ends meanwhile deletes older ones, and what has no manifest is torn."""
    checkpoints = here.checkpoints()
    checkpoints.save(at(5), write)
    finish = checkpoints.begin(at(10), lambda directory: lambda: write(directory))
    put, key = here.store.put_file, "runs/run_1/checkpoints/global_step_10/attempt-1"

    def deleting(name: str, path: Path) -> None:
        put(name, path)
        assert list(checkpoints.prune(9)) == []

    here.store.put_file = deleting  # type: ignore[method-assign]
    finish()
    assert fetch(here.store, key, here.run_dir / "fetched").manifest.step == 10
    here.store.put("runs/run_1/checkpoints/global_step_11/attempt-1/policy/weights", b"w")
    assert list(checkpoints.prune(9)) == ["checkpoints/global_step_11/attempt-1"]


def test_files_travel_to_the_store_beside_each_other(
    here: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other's last byte: each begins while the other is under way."""
    both = threading.Barrier(2, timeout=20)
    put = here.store.put_file

    def transfer(key: str, path: Path) -> None:
        both.wait()
        put(key, path)

    monkeypatch.setattr(here.store, "put_file", transfer)
    saved = here.checkpoints().save(at(1), write)
    assert len(saved.manifest.files) == 2
    for file in saved.manifest.files:
        content = here.store.get(f"{saved.key}/{file.path}")
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size_bytes, file.sha256)
