"""How a trainer ended, read from what it left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from trainer.contract.launch import AttemptEnd
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import AttemptDir, ExitRecord
from trainer.handover.masking import Mask
from trainer.handover.processes import describe_exit

LOG_TAIL_LINES = 12
LOG_TAIL_BYTES = 16_384
LOG_MARGIN_BYTES = 65_536
"""Read before the tail, so that a secret that lies across its beginning is known."""
MESSAGE_LIMIT = 4_000


def attempt_end(
    where: AttemptDir, exit_code: int | None, *, asked_to_stop: bool, mask: Mask
) -> AttemptEnd:
    """The report on a trainer that is gone: its own words, or what can be told without them.

    `asked_to_stop`: we sent the signal, so its death is no crash. What `mask` knows is not told.
    """
    record = read_exit(where)
    if record is not None:
        return AttemptEnd(
            reason=record.reason,
            message=mask.text(record.message),
            exit_code=exit_code,
            last_trainer_seq=record.last_trainer_seq,
        )
    how = f"the trainer {describe_exit(exit_code)}"
    if asked_to_stop:
        reason = ReasonCode.RUNNER_STOPPED
        message = f"{how} after it was asked to stop; the run goes on from its last checkpoint"
    else:
        reason = ReasonCode.TRAINER_CRASHED
        said = log_tail(where.log, mask)
        message = f"{how}; last lines of its log:\n{said}" if said else f"{how}; its log is empty"
    return AttemptEnd(
        reason=reason,
        message=mask.text(message)[:MESSAGE_LIMIT],
        exit_code=exit_code,
        last_trainer_seq=last_trainer_seq(where.events),
    )


def read_exit(where: AttemptDir) -> ExitRecord | None:
    """What `exit.json` says; None when it is absent or torn."""
    try:
        return ExitRecord.model_validate_json(where.exit.read_bytes())
    except (OSError, ValidationError):
        return None


def log_tail(log: Path, mask: Mask) -> str:
    """The last lines of a log, masked before they are cut; empty when there are none."""
    try:
        with log.open("rb") as file:
            begin = max(0, log.stat().st_size - LOG_TAIL_BYTES - LOG_MARGIN_BYTES)
            file.seek(begin, os.SEEK_SET)
            data = mask.raw(file.read())[-LOG_TAIL_BYTES:]
            text = data.decode(errors="replace").replace("\0", "�")
            lines = text.splitlines()
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-LOG_TAIL_LINES:])


def whole_lines(events: Path) -> list[bytes]:
    """The complete lines of `events.jsonl`; a torn last one, of a killed trainer, is left out."""
    try:
        lines = events.read_bytes().splitlines(keepends=True)
    except OSError:
        return []
    return [line for line in lines if line.endswith(b"\n") and line.strip()]


def last_trainer_seq(events: Path) -> int:
    """Number of the last complete event; 0 when there is none."""
    for line in reversed(whole_lines(events)):
        seq = trainer_seq(line)
        if seq is not None:
            return seq
    return 0


def trainer_seq(line: bytes) -> int | None:
    """The number an event line carries; None when it is not JSON or carries none."""
    try:
        seq = json.loads(line).get("trainer_seq")
    except (ValueError, AttributeError):
        return None
    return seq if isinstance(seq, int) else None
