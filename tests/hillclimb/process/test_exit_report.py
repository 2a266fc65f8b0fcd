"""The report of a trainer's end counts the events that it wrote, whatever its record says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hillclimb.process.exit_report import attempt_end
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import AttemptDir, ExitRecord

KILLED = -9


def an_attempt(folder: Path, *, recorded: int, lines: bytes) -> AttemptDir:
    """Files of a trainer that had done every step when its record counted `recorded` events."""
    attempt_dir = AttemptDir(folder, 1)
    attempt_dir.path.mkdir()
    record = ExitRecord(
        reason=ReasonCode.COMPLETED,
        message="trained 6 steps",
        step=6,
        last_trainer_seq=recorded,
        at=datetime.now(UTC),
    )
    attempt_dir.exit.write_text(record.model_dump_json())
    attempt_dir.events.write_bytes(lines)
    return attempt_dir


@pytest.mark.parametrize(
    ("recorded", "lines", "expected"),
    [
        pytest.param(
            1, b'{"trainer_seq":1}\n{"trainer_seq":2}\n', 2, id="written-after-the-record"
        ),
        pytest.param(2, b'{"trainer_seq":1}\n{"trainer_seq":2}\n', 2, id="record-is-the-last"),
        pytest.param(1, b'{"trainer_seq":1}\n{"trainer_s', 1, id="half-a-line-is-no-event"),
        pytest.param(2, b'{"trainer_seq":1}\n', 2, id="lost-from-the-disk"),
    ],
)
def test_the_service_waits_for_every_event_of_a_trainer(
    tmp_path: Path, recorded: int, lines: bytes, expected: int
) -> None:
    """A trainer records that it completed before it writes its last event, and may die between."""
    attempt_dir = an_attempt(tmp_path, recorded=recorded, lines=lines)
    end = attempt_end(attempt_dir, KILLED, stop_requested=False, redactor=Redactor())
    assert (end.reason, end.last_trainer_seq) == (ReasonCode.COMPLETED, expected)
