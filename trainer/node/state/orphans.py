"""Finds the trainer that a dead node process left on its machine, by its mark."""

from __future__ import annotations

import os

import psutil

from hillclimb.process.identity import TrainerProcess, find_marked, is_alive, start_of
from hillclimb.process.launcher import read_pid, write_pid
from hillclimb.protocol.rundir import AttemptDir, PidRecord
from trainer.node.settings import NodeSettings

INGEST = "HILLCLIMB_INGEST_URL"
"""Only trainers are started with it. Ray leads a session too, so that alone would not tell."""


def find_trainer(
    settings: NodeSettings, attempt_dir: AttemptDir
) -> tuple[TrainerProcess, dict[str, str]] | None:
    """Return the live trainer with its environment; None when it has exited."""
    record = read_pid(attempt_dir)
    if record is None or not is_alive(record):
        record = _by_mark(settings, attempt_dir)
    if record is None:
        return None
    try:
        environ = psutil.Process(record.pid).environ()
    except psutil.Error:
        return None
    return TrainerProcess(record=record), environ


def _by_mark(settings: NodeSettings, attempt_dir: AttemptDir) -> PidRecord | None:
    for owner, process in find_marked(settings.own_dir):
        try:
            is_leader = os.getsid(process.pid) == process.pid
            if owner == settings.attempt_id and is_leader and INGEST in process.environ():
                record = PidRecord(pid=process.pid, started_at=start_of(process))
                write_pid(attempt_dir, record)
                return record
        except (OSError, psutil.Error):  # it has exited meanwhile
            continue
    return None
