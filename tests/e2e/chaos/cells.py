"""The table of cells: which part is hit, in which phase of a run, and by what.

A cell hits one part once while one small run is in one phase. docs/chaos.md has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """A process of the stack, or what stands in for one."""

    API = "api"
    WORKER = "worker"
    BEAT = "beat"
    BROKER = "broker"
    POSTGRES = "postgres"
    SUPERVISOR = "supervisor"
    RUNNER = "runner"
    TRAINER = "trainer"
    """The controller: with Ray its workers are processes of their own."""
    TRIAL = "trial"
    """The process that tries a checkpoint."""
    ENGINE = "engine"
    RANK = "learner-rank"
    ROLLOUTS = "rollout-worker"
    ENVIRONMENTS = "environment-server"
    MACHINE = "machine"
    """The runner and its trainer, at once: one that loses power or sleeps."""
    HOST = "host"
    """Every process of the stack at once, trainers and supervisor included."""
    EVENTS = "events"
    """The batches that a trainer sends to ingest."""
    CLOCK = "clock"
    """That of every process of the stack."""
    DISK = "disk"
    """With the whole state of the stack: databases, blobs, runs and logs."""


SUPERVISED = {
    Part.API: "api",
    Part.WORKER: "worker",
    Part.BEAT: "beat",
    Part.BROKER: "valkey",
    Part.POSTGRES: "postgres",
    Part.RUNNER: "runner",
}
"""Parts that the supervisor starts again, with the names of their services."""


HOLD_AN_ATTEMPT = (Part.TRAINER, Part.RANK, Part.MACHINE, Part.HOST)
"""Parts whose death ends the attempt under way."""


class Phase(StrEnum):
    """Where a run is: a status, or what a running trainer does."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    """Offered to the runner, which has not claimed it."""
    CLAIMING = "claiming"
    """The service has just given it to the runner, which has not started a trainer."""
    STARTING = "starting"
    RUNNING = "running"
    EVALUATING = "evaluating"
    CHECKPOINTING = "checkpointing"
    RECOVERING = "recovering"
    LEAVING = "leaving"
    """The trainer has written that it has done every step, and has not exited."""
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    PAUSING = "pausing"


class Blow(StrEnum):
    """What happens to a part."""

    KILL = "kill"
    """SIGKILL."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT after a while that is shorter than any lease."""
    SLEEP = "sleep"
    """The same, longer than every lease."""
    RESTART = "restart"
    """Asked to end, while clients read and write: PostgreSQL shuts down fast, API and worker end as
    in an update."""
    FLUSH = "flush"
    """FLUSHALL."""
    REPEAT = "repeat"
    """Sent twice, backwards, and with a gap."""
    FORWARD = "forward"
    """Set an hour forward; it stays so until the run has ended."""
    BACK = "back"
    """Set an hour back, likewise."""
    FULL = "full"
    """No byte is free for a while: the run pauses, and is resumed when there is space again."""


class RunKind(StrEnum):
    """The run that is hit."""

    EXACT = "exact"
    """`deterministic`, inline: whatever happens, it has to equal the run that nobody disturbed."""
    TRIED = "tried"
    """The same, and each checkpoint is tried in a process of its own."""
    RAY = "ray"
    """Engine, two learner ranks and a rollout worker are processes of Ray."""
    FLEET = "fleet"
    """Environments are instances of a platform over HTTP."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One part, one phase, one blow."""

    part: Part
    phase: Phase
    blow: Blow = Blow.KILL
    run: RunKind = RunKind.EXACT

    @property
    def name(self) -> str:
        kind = f"-{self.run}" if self.part is Part.TRAINER and self.run is not RunKind.EXACT else ""
        return f"{self.part}-{self.phase}-{self.blow}{kind}"

    @property
    def num_attempts(self) -> int:
        """Attempts that the run needs: an outage of the service itself costs none."""
        if self.phase in (Phase.RECOVERING, Phase.PAUSING) or self.part is Part.DISK:
            return 2
        if self.phase in (Phase.CANCELLING, Phase.LEAVING, Phase.FINALIZING):
            return 1
        if self.phase is Phase.CLAIMING:
            return 2 if self.part is Part.RUNNER else 1
        is_lost = self.blow is Blow.KILL or self.part is Part.MACHINE
        return 2 if is_lost and self.part in HOLD_AN_ATTEMPT else 1


STRAINED = (Part.CLOCK, Part.DISK)
"""Parts that only a stack of its own has (`strains.py`), on a machine that allows it."""


CELLS = (
    Cell(Part.API, Phase.QUEUED),
    Cell(Part.WORKER, Phase.QUEUED),
    Cell(Part.BEAT, Phase.QUEUED),
    Cell(Part.BROKER, Phase.QUEUED),
    Cell(Part.POSTGRES, Phase.QUEUED),
    Cell(Part.RUNNER, Phase.QUEUED),
    Cell(Part.RUNNER, Phase.PROVISIONING),
    Cell(Part.API, Phase.PROVISIONING, Blow.STOP),
    Cell(Part.RUNNER, Phase.CLAIMING),
    Cell(Part.API, Phase.CLAIMING),
    Cell(Part.TRAINER, Phase.STARTING),
    Cell(Part.RUNNER, Phase.STARTING),
    Cell(Part.API, Phase.STARTING),
    Cell(Part.POSTGRES, Phase.STARTING),
    Cell(Part.TRAINER, Phase.RUNNING),
    Cell(Part.TRAINER, Phase.RUNNING, Blow.STOP),
    Cell(Part.API, Phase.RUNNING),
    Cell(Part.API, Phase.RUNNING, Blow.STOP),
    Cell(Part.API, Phase.RUNNING, Blow.RESTART),
    Cell(Part.WORKER, Phase.RUNNING),
    Cell(Part.WORKER, Phase.RUNNING, Blow.STOP),
    Cell(Part.WORKER, Phase.RUNNING, Blow.RESTART),
    Cell(Part.BROKER, Phase.RUNNING),
    Cell(Part.BROKER, Phase.RUNNING, Blow.FLUSH),
    Cell(Part.POSTGRES, Phase.RUNNING, Blow.STOP),
    Cell(Part.POSTGRES, Phase.RUNNING, Blow.SLEEP),
    Cell(Part.POSTGRES, Phase.RUNNING, Blow.RESTART),
    Cell(Part.RUNNER, Phase.RUNNING, Blow.STOP),
    Cell(Part.SUPERVISOR, Phase.RUNNING),
    Cell(Part.MACHINE, Phase.RUNNING),
    Cell(Part.MACHINE, Phase.CHECKPOINTING, Blow.SLEEP),
    Cell(Part.HOST, Phase.RUNNING),
    Cell(Part.EVENTS, Phase.RUNNING, Blow.REPEAT),
    Cell(Part.TRAINER, Phase.EVALUATING),
    Cell(Part.API, Phase.EVALUATING),
    Cell(Part.RUNNER, Phase.EVALUATING),
    Cell(Part.TRAINER, Phase.CHECKPOINTING),
    Cell(Part.TRAINER, Phase.CHECKPOINTING, Blow.STOP),
    Cell(Part.POSTGRES, Phase.CHECKPOINTING),
    Cell(Part.HOST, Phase.CHECKPOINTING),
    Cell(Part.TRIAL, Phase.CHECKPOINTING, run=RunKind.TRIED),
    Cell(Part.WORKER, Phase.RECOVERING),
    Cell(Part.API, Phase.RECOVERING),
    Cell(Part.RUNNER, Phase.RECOVERING),
    Cell(Part.SUPERVISOR, Phase.RECOVERING),
    Cell(Part.TRAINER, Phase.LEAVING),
    Cell(Part.MACHINE, Phase.LEAVING),
    Cell(Part.RUNNER, Phase.FINALIZING),
    Cell(Part.API, Phase.FINALIZING),
    Cell(Part.POSTGRES, Phase.FINALIZING),
    Cell(Part.HOST, Phase.FINALIZING),
    Cell(Part.TRAINER, Phase.CANCELLING),
    Cell(Part.RUNNER, Phase.CANCELLING),
    Cell(Part.API, Phase.CANCELLING),
    Cell(Part.TRAINER, Phase.PAUSING),
    Cell(Part.RUNNER, Phase.PAUSING),
    Cell(Part.WORKER, Phase.PAUSING),
    Cell(Part.ENVIRONMENTS, Phase.RUNNING, run=RunKind.FLEET),
    Cell(Part.ENVIRONMENTS, Phase.RUNNING, Blow.STOP, run=RunKind.FLEET),
    Cell(Part.TRAINER, Phase.RUNNING, run=RunKind.FLEET),
    Cell(Part.ENGINE, Phase.RUNNING, run=RunKind.RAY),
    Cell(Part.ENGINE, Phase.EVALUATING, Blow.STOP, run=RunKind.RAY),
    Cell(Part.ROLLOUTS, Phase.RUNNING, run=RunKind.RAY),
    Cell(Part.RANK, Phase.RUNNING, run=RunKind.RAY),
    Cell(Part.TRAINER, Phase.RUNNING, run=RunKind.RAY),
    Cell(Part.CLOCK, Phase.QUEUED, Blow.BACK),
    Cell(Part.CLOCK, Phase.RUNNING, Blow.FORWARD),
    Cell(Part.CLOCK, Phase.RUNNING, Blow.BACK),
    Cell(Part.DISK, Phase.RUNNING, Blow.FULL),
    Cell(Part.DISK, Phase.CHECKPOINTING, Blow.FULL),
)
