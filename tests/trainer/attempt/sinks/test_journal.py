from datetime import UTC, datetime
from pathlib import Path

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.events import EVENTS, PhaseStarted, RunWarning
from hillclimb.protocol.rundir import AttemptDir
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.segments import Segments


def warn(journal: EventJournal, message: str) -> None:
    journal.emit(RunWarning(step=1, code="test", message=message))


def messages(data: bytes) -> list[tuple[int, str]]:
    events = [EVENTS.validate_json(line) for line in data.splitlines()]
    return [(e.trainer_seq, e.message) for e in events if isinstance(e, RunWarning)]


def test_events_are_numbered_from_one_without_gaps_and_on_disk_at_once(tmp_path: Path) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    warn(journal, "a")
    warn(journal, "b")
    assert messages((tmp_path / "events.jsonl").read_bytes()) == [(1, "a"), (2, "b")]
    journal.close(drain_s=0.0)


def test_an_event_keeps_its_fields_and_gets_its_number_and_time_from_the_journal(
    tmp_path: Path,
) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    event = PhaseStarted(step=1, phase="prompts", num_rollouts=5)
    before = datetime.now(UTC)
    journal.emit(event)
    (stored,) = map(EVENTS.validate_json, (tmp_path / "events.jsonl").read_bytes().splitlines())
    assert stored == event.numbered(1, stored.at)
    assert before <= stored.at <= datetime.now(UTC)
    assert journal.phase == "prompts"
    journal.close(drain_s=0.0)


def test_a_restart_goes_on_counting_and_cuts_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = EventJournal(JsonlFile(path))
    warn(first, "a")
    first.close(drain_s=0.0)
    with path.open("ab") as handle:
        handle.write(b'{"type":"run.war')
    second = EventJournal(JsonlFile(path))
    warn(second, "b")
    second.close(drain_s=0.0)
    assert messages(path.read_bytes()) == [(1, "a"), (2, "b")]


def read_segments(store: DiskStore, kind: str) -> bytes:
    return b"".join(store.get(key) for key in store.list(f"runs/run_1/attempt-1/{kind}"))


def test_segments_hold_every_line_of_events_and_log_once(tmp_path: Path) -> None:
    store, where = DiskStore(tmp_path / "blobs"), AttemptDir(tmp_path / "runs" / "run_1", 1)
    for part in ("first", "second"):
        file = JsonlFile(where.events)
        journal = EventJournal(file, [Segments(store, where, interval_s=60.0)])
        with where.log.open("a") as log:
            log.write(f"{part}\n")
        warn(journal, part)
        assert journal.close(drain_s=10.0)
    assert read_segments(store, "events") == where.events.read_bytes()
    assert read_segments(store, "logs") == b"first\nsecond\n"
    assert store.list("runs/run_1/attempt-1/events") == (
        "runs/run_1/attempt-1/events/000001.jsonl",
        "runs/run_1/attempt-1/events/000002.jsonl",
    )


@pytest.mark.parametrize("note", [None, "", "{", '{"events": 1, "log": 2}'])
def test_a_segment_stored_but_not_noted_is_stored_again_under_its_number(
    tmp_path: Path, note: str | None
) -> None:
    store, where = DiskStore(tmp_path / "blobs"), AttemptDir(tmp_path / "runs" / "run_1", 1)
    journal = EventJournal(JsonlFile(where.events), [Segments(store, where, interval_s=60.0)])
    warn(journal, "a")
    assert journal.close(drain_s=10.0)
    (where.path / "segments.json").unlink()
    if note is not None:
        (where.path / "segments.json").write_text(note)
    journal = EventJournal(JsonlFile(where.events), [Segments(store, where, interval_s=60.0)])
    warn(journal, "b")
    assert journal.close(drain_s=10.0)
    assert read_segments(store, "events") == where.events.read_bytes()


def test_a_store_that_fails_is_no_reason_to_stop(tmp_path: Path) -> None:
    class Down(DiskStore):
        def put(self, key: str, data: bytes) -> None:
            raise StoreError("down")

    where = AttemptDir(tmp_path / "runs" / "run_1", 1)
    segments = Segments(Down(tmp_path / "blobs"), where, interval_s=60.0)
    journal = EventJournal(JsonlFile(where.events), [segments])
    warn(journal, "a")
    assert not journal.close(drain_s=10.0)
    assert messages(where.events.read_bytes()) == [(1, "a")]
