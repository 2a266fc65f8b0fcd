"""Names of files in a run directory and in the blob store, defined only here.

    <state>/runs/<run_id>/
        attempt-1/    spec.json events.jsonl trainer.log pid.json exit.json trajectories/
                      resume/ model/ weights/ (deleted when a later attempt begins)
        checkpoints/global_step_10/attempt-1/    parts, then manifest.json, then the trial's result

The blob store mirrors it under `runs/<run_id>/`; events and logs go there as numbered segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from hillclimb.protocol.end_reasons import ReasonCode

NodeFile = Literal["plan", "stop", "claim", "alive", "end"]
TagPart = Literal["rollouts", "prompts"]
SPEC = "spec.json"
MANIFESTS = "manifests.json"
EVENTS = "events.jsonl"
LOG = "trainer.log"
PID = "pid.json"
EXIT = "exit.json"
TRAJECTORIES = "trajectories"
TIMES = "times"
"""Directory of the attempt for what its rollouts did from when to when."""
VALUES = "token-values"
"""Directory of the attempt for the learner's values of each token that it learned from."""
VOCABULARY = "vocabulary.json.gz"
"""The texts of all tokens, by id: a list in which bytes that are no text are a list of numbers."""
TRACKING = "tracking"
"""Directory of the attempt, in the blob store, for the files of experiment trackers."""
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
QUALIFIED = "qualified.json"
"""File beside the manifest of a checkpoint that passed its trial."""
REFUSED = "refused.json"
"""File beside the manifest of a checkpoint that failed its trial; it has the reason."""
PROMPTS = "prompts.jsonl.gz"
RESUME = "resume"
"""Directory of the attempt in which the checkpoint to resume from is unpacked."""
QUALIFY = "qualify"
"""Directory of the attempt in which a checkpoint is tried after it was saved."""
MODEL = "model"
"""Directory of the attempt for downloaded models."""
WEIGHTS = "weights"
"""Directory of the attempt for weights that go from learner to engines over the disk."""
POLICY = "policy"
"""Directory of a checkpoint with the weights, in Hugging Face format."""
ADAPTER = "adapter"
"""Directory of a checkpoint with the adapter in peft's format, if one is trained."""


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """Local files of one attempt."""

    run_dir: Path
    attempt: int

    @property
    def path(self) -> Path:
        """Directory of the attempt."""
        return self.run_dir / attempt_name(self.attempt)

    @property
    def spec(self) -> Path:
        """The resolved spec that the trainer reads."""
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
    def manifests(self) -> Path:
        """Digests of the checkpoints that the attempt may open; absent where nobody knows them."""
        return self.path / MANIFESTS

    @property
    def pid(self) -> Path:
        """Identity of the trainer's process (pid and start time)."""
        return self.path / PID

    @property
    def exit(self) -> Path:
        """The trainer's exit record; absent if it was killed."""
        return self.path / EXIT

    @property
    def trajectories(self) -> Path:
        """Trajectory files before their upload to the blob store."""
        return self.path / TRAJECTORIES

    @property
    def times(self) -> Path:
        """Files of the rollouts' times before their upload to the blob store."""
        return self.path / TIMES

    @property
    def token_values(self) -> Path:
        """Files of the tokens' values before their upload to the blob store."""
        return self.path / VALUES

    @property
    def vocabulary(self) -> Path:
        """The texts of all tokens, before their upload to the blob store."""
        return self.path / VOCABULARY

    def checkpoint(self, step: int) -> Path:
        """Directory of the checkpoint that this attempt writes at `step`."""
        return self.run_dir / checkpoint_name(step, self.attempt)


def attempt_name(attempt: int) -> str:
    """Return `attempt-A`."""
    return f"attempt-{attempt}"


def run_tag(run_id: str, attempt: int, part: TagPart = "rollouts") -> str:
    """Return the tag of an attempt's resources on a platform, such as instances.

    Closing deletes everything with the tag, so parts of an attempt that may run concurrently have
    separate tags.
    """
    name = f"hillclimb.{run_id}.{attempt}"
    return name if part == "rollouts" else f"{name}.{part}"


def run_tags(run_id: str, attempt: int) -> tuple[str, ...]:
    """Return every tag that an attempt's resources on a platform may have."""
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


def times_file(attempt: int, name: str) -> str:
    """Return the blob key, relative to the run, of a file of rollouts' times (gzip, JSON lines)."""
    return f"{attempt_name(attempt)}/{TIMES}/{name}.jsonl.gz"


def token_values_file(attempt: int, name: str) -> str:
    """Return the blob key, relative to the run, of a file of tokens' values (gzip, JSON lines).

    Its name is that of the trajectory file; line n is about the rollout of that file's line n.
    """
    return f"{attempt_name(attempt)}/{VALUES}/{name}.jsonl.gz"


def vocabulary_file(attempt: int) -> str:
    """Return the blob key, relative to the run, of the texts of the attempt's tokens."""
    return f"{attempt_name(attempt)}/{VOCABULARY}"


def tracking_file(attempt: int, name: str) -> str:
    """Return the blob key, relative to the run, of a file that a tracker wrote."""
    return f"{attempt_name(attempt)}/{TRACKING}/{name}"


def prompts_file(attempt: int) -> str:
    """Return the blob key, relative to the run, of the prompts that an attempt stored in full."""
    return f"{attempt_name(attempt)}/{PROMPTS}"


def node_file(attempt: int, name: NodeFile) -> str:
    """Return the blob key, relative to the run, of a message to or from an attempt's first node.

    The service writes `plan` and `stop`, the node the others: `hillclimb.protocol.node_messages`.
    """
    return f"{attempt_name(attempt)}/node/{name}.json"


class ExitRecord(BaseModel):
    """`exit.json`: written by the trainer just before it exits."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: ReasonCode
    message: str
    step: int
    last_trainer_seq: int
    at: datetime


class PidRecord(BaseModel):
    """`pid.json`: identifies a process again after a restart of its owner."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int
    started_at: float
    """Start time in seconds, on the scale of `hillclimb.process.identity.start_of`."""
