"""A write that fails halfway leaves whole lines, each number once."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hillclimb.protocol.events import EVENTS, RunWarning
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let writes beyond `size` bytes of any file fail, the part before it being written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def warn(journal: EventJournal, message: str) -> None:
    journal.emit(RunWarning(step=1, code="test", message=message))


def test_an_event_that_does_not_fit_is_not_there_and_a_smaller_one_takes_its_number(
    tmp_path: Path,
) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    warn(journal, "first")
    with files_end_at(2000):
        with pytest.raises(OSError, match="too large"):
            warn(journal, "x" * 3000)
        warn(journal, "small")
    journal.close(drain_s=0.0)
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert [EVENTS.validate_json(line).trainer_seq for line in lines] == [1, 2]
    assert journal.last_seq == 2
