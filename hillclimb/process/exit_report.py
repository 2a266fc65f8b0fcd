"""Reports how a trainer ended, from its exit record, its log and its events."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from hillclimb.process.identity import describe_exit
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport
from hillclimb.protocol.rundir import AttemptDir, ExitRecord

LOG_TAIL_LINES = 12
LOG_TAIL_BYTES = 16_384
LOG_MARGIN_BYTES = 65_536
"""Read before the tail, so that a secret across the tail's start is redacted as a whole."""
MESSAGE_LIMIT = 4_000


def attempt_end(
    attempt_dir: AttemptDir, exit_code: int | None, *, stop_requested: bool, redactor: Redactor
) -> EndReport:
    """Return the end report of an exited trainer: its own exit record, or exit code and log tail.

    `stop_requested`: we sent the signal, so its exit is no crash. Secrets are redacted.
    """
    record = read_exit(attempt_dir)
    num_events = last_trainer_seq(attempt_dir.events)
    if record is not None:
        return EndReport(
            reason=record.reason,
            message=redactor.text(record.message),
            exit_code=exit_code,
            # It is written before the last event, too, in case the trainer dies while it closes.
            last_trainer_seq=max(record.last_trainer_seq, num_events),
        )
    how = f"the trainer {describe_exit(exit_code)}"
    if stop_requested:
        reason = ReasonCode.RUNNER_STOPPED
        message = f"{how} after it was asked to stop; the run goes on from its last checkpoint"
    else:
        reason = ReasonCode.TRAINER_CRASHED
        tail = log_tail(attempt_dir.log, redactor)
        message = f"{how}; last lines of its log:\n{tail}" if tail else f"{how}; its log is empty"
    return EndReport(
        reason=reason,
        message=redactor.text(message)[:MESSAGE_LIMIT],
        exit_code=exit_code,
        last_trainer_seq=num_events,
    )


def read_exit(attempt_dir: AttemptDir) -> ExitRecord | None:
    """Return the record in `exit.json`; None when it is missing or incomplete."""
    try:
        return ExitRecord.model_validate_json(attempt_dir.exit.read_bytes())
    except (OSError, ValidationError):
        return None


def log_tail(log: Path, redactor: Redactor) -> str:
    """Return the last lines of a log, redacted before they are cut; empty when there are none."""
    try:
        with log.open("rb") as file:
            begin = max(0, log.stat().st_size - LOG_TAIL_BYTES - LOG_MARGIN_BYTES)
            file.seek(begin, os.SEEK_SET)
            data = redactor.raw(file.read())[-LOG_TAIL_BYTES:]
            text = data.decode(errors="replace").replace("\0", "�")
            lines = text.splitlines()
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-LOG_TAIL_LINES:])


def whole_lines(events: Path) -> list[bytes]:
    """Return the complete lines of `events.jsonl`; a killed trainer may leave a partial one."""
    try:
        lines = events.read_bytes().splitlines(keepends=True)
    except OSError:
        return []
    return [line for line in lines if line.endswith(b"\n") and line.strip()]


def last_trainer_seq(events: Path) -> int:
    """Return the number of the last complete event; 0 when there is none."""
    for line in reversed(whole_lines(events)):
        seq = trainer_seq(line)
        if seq is not None:
            return seq
    return 0


def trainer_seq(line: bytes) -> int | None:
    """Return the number of an event line; None when it is not JSON or has none."""
    try:
        seq = json.loads(line).get("trainer_seq")
    except (ValueError, AttributeError):
        return None
    return seq if isinstance(seq, int) else None
