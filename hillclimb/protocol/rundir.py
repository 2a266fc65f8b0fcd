"""Names in a run directory and in the blob store; nothing else spells them.

    <state>/runs/<run_id>/
        attempt-1/    spec.json events.jsonl trainer.log pid.json exit.json trajectories/
                      resume/ model/ weights/ (deleted when a later attempt begins)
        checkpoints/global_step_10/attempt-1/    parts, then manifest.json

The blob store mirrors it under `runs/<run_id>/`; events and logs go there as numbered segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from trainer.contract.reasons import ReasonCode

NodeFile = Literal["plan", "stop", "taken", "alive", "end"]
TagPart = Literal["rollouts", "prompts"]
SPEC = "spec.json"
EVENTS = "events.jsonl"
LOG = "trainer.log"
PID = "pid.json"
EXIT = "exit.json"
TRAJECTORIES = "trajectories"
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
PROMPTS = "prompts.jsonl.gz"
RESUME = "resume"
"""Directory of the attempt in which the checkpoint to go on from is unpacked."""
MODEL = "model"
"""Directory of the attempt for models that have to be brought here."""
WEIGHTS = "weights"
"""Directory of the attempt in which weights pass from learner to engines over a disk."""


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """Local files of one attempt."""

    run_dir: Path
    attempt: int

    @property
    def path(self) -> Path:
        """The attempt's own directory."""
        return self.run_dir / attempt_name(self.attempt)

    @property
    def spec(self) -> Path:
        """The resolved spec the trainer reads."""
        return self.path / SPEC

    @property
    def events(self) -> Path:
        """One event per line, written before anything is sent."""
        return self.path / EVENTS

    @property
    def log(self) -> Path:
        """Standard output and error of the trainer."""
        return self.path / LOG

    @property
    def pid(self) -> Path:
        """Which process is the trainer (pid and start time)."""
        return self.path / PID

    @property
    def exit(self) -> Path:
        """Why the trainer left; absent when it was killed."""
        return self.path / EXIT

    @property
    def trajectories(self) -> Path:
        """Trajectory files before they are in the blob store."""
        return self.path / TRAJECTORIES

    def checkpoint(self, step: int) -> Path:
        """Directory of the checkpoint that this attempt writes at `step`."""
        return self.run_dir / checkpoint_name(step, self.attempt)


def attempt_name(attempt: int) -> str:
    """Return `attempt-A`."""
    return f"attempt-{attempt}"


def run_tag(run_id: str, attempt: int, part: TagPart = "rollouts") -> str:
    """Return the name under which platforms hold something for an attempt, such as instances.

    Whoever closes deletes what carries its name, so parts of an attempt that may run side by side
    have names of their own.
    """
    name = f"hillclimb.{run_id}.{attempt}"
    return name if part == "rollouts" else f"{name}.{part}"


def run_tags(run_id: str, attempt: int) -> tuple[str, ...]:
    """Return every name under which platforms may hold something for an attempt."""
    return tuple(run_tag(run_id, attempt, part) for part in get_args(TagPart))


def checkpoint_name(step: int | Literal["*"], attempt: int) -> str:
    """Return the checkpoint's path relative to the run; `*` gives a pattern for all steps."""
    return f"{CHECKPOINTS}/global_step_{step}/{attempt_name(attempt)}"


def run_key(run_id: str, *parts: str) -> str:
    """Return a blob key under a run."""
    return "/".join(("runs", run_id, *parts))


def event_segment(attempt: int, number: int) -> str:
    """Return the blob key, relative to the run, of the attempt's `number`-th event segment."""
    return f"{attempt_name(attempt)}/events/{number:06d}.jsonl"


def log_segment(attempt: int, number: int) -> str:
    """Return the blob key, relative to the run, of the attempt's `number`-th log segment."""
    return f"{attempt_name(attempt)}/logs/{number:06d}.log"


def trajectory_file(attempt: int, name: str) -> str:
    """Return the blob key, relative to the run, of a trajectory file (gzip, one JSON per line)."""
    return f"{attempt_name(attempt)}/{TRAJECTORIES}/{name}.jsonl.gz"


def prompts_file(attempt: int) -> str:
    """Return the blob key, relative to the run, of the prompts an attempt kept in full."""
    return f"{attempt_name(attempt)}/{PROMPTS}"


def node_file(attempt: int, name: NodeFile) -> str:
    """Return the blob key, relative to the run, of what an attempt's first node is told or tells.

    `plan` and `stop` are the service's to write, the others the node's: `trainer.contract.node`.
    """
    return f"{attempt_name(attempt)}/node/{name}.json"


class ExitRecord(BaseModel):
    """`exit.json`: written by the trainer as its last act."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: ReasonCode
    message: str
    step: int
    last_trainer_seq: int
    at: datetime


class PidRecord(BaseModel):
    """`pid.json`: enough to know a process again after a restart of its owner."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started_at: float
    """Process start time in seconds since the epoch, as the operating system reports it."""
