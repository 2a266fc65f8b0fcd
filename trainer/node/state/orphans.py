"""What a node process that died has left on its machine, known by its mark."""

from __future__ import annotations

import os

import psutil

from trainer.contract.rundir import AttemptDir, PidRecord
from trainer.handover.launch import read_pid, write_pid
from trainer.handover.processes import TrainerProcess, is_alive, marked
from trainer.node.settings import NodeSettings

INGEST = "HILLCLIMB_INGEST_URL"
"""Only trainers are started with it; Ray leads a session of its own too."""


def find_trainer(
    settings: NodeSettings, where: AttemptDir
) -> tuple[TrainerProcess, dict[str, str]] | None:
    """Return the trainer that is still there, with its environment; None when it is gone."""
    record = read_pid(where)
    if record is None or not is_alive(record):
        record = _by_command(settings, where)
    if record is None:
        return None
    try:
        environ = psutil.Process(record.pid).environ()
    except psutil.Error:
        return None
    return TrainerProcess(record=record), environ


def _by_command(settings: NodeSettings, where: AttemptDir) -> PidRecord | None:
    for owner, process in marked(settings.own_dir):
        try:
            is_leader = os.getsid(process.pid) == process.pid
            if owner == settings.attempt_id and is_leader and INGEST in process.environ():
                record = PidRecord(pid=process.pid, started_at=process.create_time())
                write_pid(where, record)
                return record
        except (OSError, psutil.Error):  # it ended meanwhile
            continue
    return None
