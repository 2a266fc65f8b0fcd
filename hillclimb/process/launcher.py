"""From a launch plan to a running trainer: run directory, command line, environment."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from trainer.contract.launch import AttemptEnd, LaunchPlan
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import AttemptDir, PidRecord
from trainer.handover.place import Place
from trainer.handover.processes import (
    ATTEMPT_VARIABLE,
    HOME_VARIABLE,
    TrainerProcess,
    is_alive,
    start_detached,
)

NOT_THE_TRAINERS = frozenset(
    {"HILLCLIMB_RUNNER_TOKEN", "HILLCLIMB_SECRET_KEY", "HILLCLIMB_BOOTSTRAP_KEY", "DATABASE_URL"}
    | {"REDIS_URL", "SLACK_BOT_TOKEN", "HILLCLIMB_READY_FILE", "PYTHONPATH", "VIRTUAL_ENV"}
    | {"HILLCLIMB_EXCHANGE_CODE"}
)
"""Variables of the control plane that a trainer must not see, or that would lead its imports."""

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts trainers for one holder."""

    place: Place
    environment: Mapping[str, str] = field(repr=False)
    withheld: frozenset[str] = NOT_THE_TRAINERS

    def prepare(self, plan: LaunchPlan) -> AttemptDir:
        """Make the attempt's directory with its spec. Raises OSError."""
        where = self.directory(plan.run_id, plan.attempt)
        where.path.mkdir(parents=True, exist_ok=True)
        where.spec.write_text(plan.spec.model_dump_json(indent=2))
        return where

    def start(self, plan: LaunchPlan, where: AttemptDir) -> TrainerProcess:
        """Start the trainer and write down which process it is. Raises OSError.

        Should we die between the two, the mark in its environment leads us to it.
        """
        trainer = start_detached(
            self.command(plan, where),
            cwd=where.path,
            environment=self._trainer_environment(plan),
            log=where.log,
        )
        write_pid(where, trainer.record)
        return trainer

    def command(self, plan: LaunchPlan, where: AttemptDir) -> tuple[str, ...]:
        """The trainer's command line."""
        resume = ("--resume-from", plan.resume_from) if plan.resume_from else ()
        return (
            self.place.trainer_python,
            *plan.command,
            *("--spec", str(where.spec)),
            *("--run-dir", str(where.run_dir)),
            *("--attempt", str(plan.attempt)),
            *resume,
        )

    def directory(self, run_id: str, attempt: int) -> AttemptDir:
        """Local files of an attempt."""
        return AttemptDir(self.place.runs_dir / run_id, attempt)

    def _trainer_environment(self, plan: LaunchPlan) -> dict[str, str]:
        kept = {k: v for k, v in self.environment.items() if k not in self.withheld}
        return kept | {
            "HILLCLIMB_INGEST_URL": plan.ingest_url,
            "HILLCLIMB_ATTEMPT_TOKEN": plan.attempt_token,
            "HILLCLIMB_BLOBS_URL": self.place.blobs_url,
            "PYTHONUNBUFFERED": "1",
            ATTEMPT_VARIABLE: plan.attempt_id,
            HOME_VARIABLE: str(self.place.own_dir),
        }


def write_pid(where: AttemptDir, record: PidRecord) -> None:
    """Write `pid.json` as a whole. Raises OSError."""
    fresh = where.pid.with_suffix(".tmp")
    fresh.write_text(record.model_dump_json())
    fresh.replace(where.pid)


def read_pid(where: AttemptDir) -> PidRecord | None:
    """What `pid.json` says, or None."""
    try:
        return PidRecord.model_validate_json(where.pid.read_bytes())
    except (OSError, ValueError):
        return None


def has_ended(where: AttemptDir) -> bool:
    """Tell whether an attempt has said so at its end, or its process is gone.

    A later process under its number is another one. Where nothing says so it may still train.
    """
    record = read_pid(where)
    try:
        return where.exit.exists() or (record is not None and not is_alive(record))
    except psutil.Error:
        return False


def launch_failure(error: OSError, path: Path | str, *, holder: str = "runner") -> AttemptEnd:
    """The end of an attempt whose trainer could not be started."""
    if error.errno in NO_SPACE:
        message = f"no space left on the {holder}'s machine to write {path}: free some and resume"
        return AttemptEnd(reason=ReasonCode.STORAGE_FULL, message=message, last_trainer_seq=0)
    what = os.strerror(error.errno) if error.errno else str(error)
    message = f"the {holder} could not start the trainer: {error.filename or path}: {what}"
    return AttemptEnd(reason=ReasonCode.TRAINER_CRASHED, message=message, last_trainer_seq=0)
