"""Starts a trainer from a launch plan: run directory, command line, environment."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hillclimb.blobs.base import DISK_FULL
from hillclimb.process import tracing
from hillclimb.process.host import TrainerHost
from hillclimb.process.identity import (
    ATTEMPT_VARIABLE,
    HOME_VARIABLE,
    TrainerProcess,
    is_alive,
    start_detached,
)
from hillclimb.process.network.addresses import PRIVATE_HOSTS
from hillclimb.process.redactor import with_secrets
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport, LaunchPlan
from hillclimb.protocol.rundir import AttemptDir, PidRecord
from hillclimb.spec.hosts import FOR_RUNS
from hillclimb.spec.rules.addresses import Hosts, sent_variables

WITHHELD_VARIABLES = frozenset(
    {"HILLCLIMB_RUNNER_TOKEN", "HILLCLIMB_SECRET_KEY", "HILLCLIMB_BOOTSTRAP_KEY", "DATABASE_URL"}
    | {"HILLCLIMB_OIDC_CLIENT_SECRET", "HILLCLIMB_OWNER_DATABASE_URL"}
    | {
        "REDIS_URL",
        "SLACK_BOT_TOKEN",
        "SLACK_SIGNING_SECRET",
        "SLACK_APP_TOKEN",
        "HILLCLIMB_READY_FILE",
        "PYTHONPATH",
        "VIRTUAL_ENV",
    }
    | {"HILLCLIMB_BOOTSTRAP_TOKEN", "HILLCLIMB_MASTER_KEYS", "HILLCLIMB_METRICS_TOKEN"}
    | {"LAMBDA_API_KEY", "RUNPOD_API_KEY", "VAST_API_KEY", "PRIME_INTELLECT_API_KEY"}
)
"""Variables of the control plane: secrets a trainer must not see, and paths that change imports."""
RAY_MODE, RAY_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
RAY_VARIABLES = frozenset({"RAY_ADDRESS", RAY_MODE, RAY_TOKEN, "RAY_AUTH_TOKEN_PATH"})
"""Which Ray a process joins, and its key."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the trainers of one runner or node."""

    host: TrainerHost
    environment: Mapping[str, str] = field(repr=False)
    withheld: frozenset[str] = WITHHELD_VARIABLES
    secret_hosts: Hosts | None = None
    """Hosts to which specs may send the machine's `RUN_SECRET_…`: a trainer gets only those that it
    sends there. None: all, because the service has chosen them already."""

    def prepare(self, plan: LaunchPlan) -> AttemptDir:
        """Create the attempt's directory with spec and digests. Raises OSError."""
        attempt_dir = self.directory(plan.run_id, plan.attempt)
        attempt_dir.path.mkdir(parents=True, exist_ok=True)
        attempt_dir.spec.write_text(plan.spec.model_dump_json(indent=2))
        if plan.manifests is None:
            attempt_dir.manifests.unlink(missing_ok=True)
        else:
            attempt_dir.manifests.write_text(json.dumps(plan.manifests, indent=1))
        return attempt_dir

    def start(self, plan: LaunchPlan, attempt_dir: AttemptDir) -> TrainerProcess:
        """Start the trainer and write its `pid.json`. Raises OSError.

        Should we die between the two, its process is found by the mark in its environment.
        """
        trainer = start_detached(
            self.command(plan, attempt_dir),
            cwd=attempt_dir.path,
            environment=self._trainer_environment(plan),
            log=attempt_dir.log,
        )
        write_pid(attempt_dir, trainer.record)
        return trainer

    def command(self, plan: LaunchPlan, attempt_dir: AttemptDir) -> tuple[str, ...]:
        """Return the trainer's command line."""
        resume = ("--resume-from", plan.resume_from) if plan.resume_from else ()
        return (
            self.host.trainer_python,
            *plan.command,
            *("--spec", str(attempt_dir.spec)),
            *("--run-dir", str(attempt_dir.run_dir)),
            *("--attempt", str(plan.attempt)),
            *resume,
        )

    def directory(self, run_id: str, attempt: int) -> AttemptDir:
        """Return the local directory of an attempt."""
        return AttemptDir(self.host.runs_dir / run_id, attempt)

    def _trainer_environment(self, plan: LaunchPlan) -> dict[str, str]:
        variables = {k: v for k, v in self.environment.items() if k not in self.withheld}
        if self.secret_hosts is not None:
            sent = sent_variables(plan.spec, self.secret_hosts)
            variables = {
                k: v for k, v in variables.items() if not k.startswith(FOR_RUNS) or k in sent
            }
        return with_secrets(variables, plan.secrets) | {
            "HILLCLIMB_INGEST_URL": plan.ingest_url,
            "HILLCLIMB_ATTEMPT_TOKEN": plan.attempt_token,
            "HILLCLIMB_BLOBS_URL": self.host.blobs_url,
            # Always set: a trainer without it takes itself for one that was started by hand.
            PRIVATE_HOSTS: self.environment.get(PRIVATE_HOSTS, ""),
            "PYTHONUNBUFFERED": "1",
            **self._trace(plan),
            **self._ray_token(),
            ATTEMPT_VARIABLE: plan.attempt_id,
            HOME_VARIABLE: str(self.host.own_dir),
        }

    def _ray_token(self) -> dict[str, str]:
        """Return the key of the Ray that the trainer starts; nothing where it joins another one.

        Ray's own default is a key per account, in a file of its home that others may read.
        """
        joins = RAY_VARIABLES & self.environment.keys()
        if joins or len(self.environment.get("SKYPILOT_NODE_IPS", "").split()) > 1:
            return {}
        return {RAY_MODE: "token", RAY_TOKEN: secrets.token_hex(32)}

    def _trace(self, plan: LaunchPlan) -> dict[str, str]:
        traceparent = tracing.current_traceparent() or plan.traceparent
        return {} if traceparent is None else {tracing.TRACEPARENT: traceparent}


def write_pid(attempt_dir: AttemptDir, record: PidRecord) -> None:
    """Write `pid.json` atomically. Raises OSError."""
    fresh = attempt_dir.pid.with_suffix(".tmp")
    fresh.write_text(record.model_dump_json())
    fresh.replace(attempt_dir.pid)


def read_pid(attempt_dir: AttemptDir) -> PidRecord | None:
    """Return the record in `pid.json`; None when it is missing or invalid."""
    try:
        return PidRecord.model_validate_json(attempt_dir.pid.read_bytes())
    except (OSError, ValueError):
        return None


def has_ended(attempt_dir: AttemptDir) -> bool:
    """Return True where an attempt has an exit record, or its recorded process has exited.

    False where neither is known: it may still train.
    """
    record = read_pid(attempt_dir)
    try:
        return attempt_dir.exit.exists() or (record is not None and not is_alive(record))
    except psutil.Error:
        return False


def launch_failure(error: OSError, path: Path | str, *, holder: str = "runner") -> EndReport:
    """Return the end report of an attempt whose trainer could not be started."""
    if error.errno in DISK_FULL:
        message = f"no space left on the {holder}'s machine to write {path}: free some and resume"
        return EndReport(reason=ReasonCode.STORAGE_FULL, message=message, last_trainer_seq=0)
    reason = os.strerror(error.errno) if error.errno else str(error)
    message = f"the {holder} could not start the trainer: {error.filename or path}: {reason}"
    return EndReport(reason=ReasonCode.TRAINER_CRASHED, message=message, last_trainer_seq=0)
