"""One attempt as a process: from the command line's values to `exit.json` and an exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from trainer.attempt import Attempt, Work
from trainer.checkpoints import find_latest
from trainer.contract.events import TrainerEnded
from trainer.contract.problems import explain
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import MANIFEST, AttemptDir, ExitRecord, run_key
from trainer.contract.spec import RunSpec
from trainer.envs.choose import check_provider
from trainer.errors import (
    AttemptSuperseded,
    CheckpointError,
    SpecError,
    StepTimeout,
    StoreUnavailable,
    TrainerError,
)
from trainer.exitrecord import MAX_MESSAGE, reserve_exit, write_exit
from trainer.handover.masking import Mask
from trainer.leftovers import remove_unpacked
from trainer.loading import importing
from trainer.sinks.base import Sink
from trainer.sinks.journal import Journal
from trainer.sinks.jsonl import JsonlFile
from trainer.sinks.push import Push
from trainer.sinks.segments import Segments
from trainer.sinks.wandb_run import WandbPlan, tracking_sink
from trainer.stopping import Stop, StopRequested
from trainer.storage import space_checked
from trainer.stores.base import BlobStore, StoreError, StoreRefused
from trainer.stores.locate import open_store
from trainer.timing import Clock

LATEST = "latest"
"""Given instead of a key: this run's newest complete checkpoint."""
DRAIN_S = 10.0
CLOSE_S = 30.0
EXIT_FAILED, EXIT_SUPERSEDED, EXIT_HUNG = 1, 3, 4
HELD = "HILLCLIMB_HELD"
"""`1`: a node holds this process (`trainer.node`)."""
INGEST_URL, TOKEN, BLOBS_URL = (
    "HILLCLIMB_INGEST_URL",
    "HILLCLIMB_ATTEMPT_TOKEN",
    "HILLCLIMB_BLOBS_URL",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The command line and the environment variables that concern an attempt."""

    spec: Path
    run_dir: Path
    attempt: int
    resume_from: str | None
    environ: Mapping[str, str]

    @property
    def dir(self) -> AttemptDir:
        """Where the attempt's files are."""
        return AttemptDir(self.run_dir.resolve(), self.attempt)

    @property
    def blobs_url(self) -> str:
        """The store: as given, else `blobs/` beside the directory of all runs."""
        return self.environ.get(BLOBS_URL) or str(self.dir.run_dir.parent.parent / "blobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    reason: ReasonCode
    message: str
    exit_code: int


async def run_attempt(launch: Launch) -> int:
    """Train one attempt and return the exit code.

    0: trained to the end, or stopped on request after a checkpoint. 1: failed; `exit.json` says
    why. 3: superseded; nothing more was written to the store. 4: failed, and a thread may hang for
    ever: the process must be ended without waiting for it.
    """
    stop, clock = Stop(), Clock()
    stop.listen(is_held=launch.environ.get(HELD) == "1")
    attempt_dir = launch.dir
    attempt_dir.path.mkdir(parents=True, exist_ok=True)
    attempt_dir.exit.unlink(missing_ok=True)
    reserve_exit(attempt_dir)
    await asyncio.to_thread(remove_unpacked, attempt_dir)
    try:
        store = await asyncio.to_thread(_open_checked, launch.blobs_url)
    except StoreError as error:
        return _stay_out(attempt_dir, f"{BLOBS_URL}: {error}")
    mask = Mask.of(launch.environ)
    journal = Journal(JsonlFile(attempt_dir.events, mask), _sinks(launch, store, stop, mask))
    progress = _Progress()
    end = await _train(launch, store, journal, stop, clock, progress)
    if end.reason is ReasonCode.ATTEMPT_SUPERSEDED:
        journal.abandon()
    else:
        with suppress(OSError):
            journal.emit(
                TrainerEnded,
                step=progress.step,
                reason=end.reason,
                message=end.message,
                training_seconds=clock.training_s,
                eval_seconds=clock.eval_s,
            )
        with suppress(OSError):
            if not await asyncio.to_thread(journal.close, drain_s=DRAIN_S):
                _log.warning("the service or the store does not have all events yet")
    _record_exit(attempt_dir, end, step=progress.step, last_trainer_seq=journal.last_seq)
    return end.exit_code


def _open_checked(url: str) -> BlobStore:
    """Open the store; one that is away for a while is no reason not to begin.

    Raises:
        StoreError: there can be no store at that address, or it will not serve us.
    """
    store = open_store(url)
    try:
        store.check()
    except StoreRefused:
        raise
    except StoreError as error:
        _log.warning("the store does not answer yet: %s", error)
    return store


def _stay_out(attempt_dir: AttemptDir, problem: str) -> int:
    """End an attempt that has nowhere to put anything: only the exit record can say so."""
    end = _failed(SpecError(problem), EXIT_FAILED)
    _record_exit(attempt_dir, end, step=0, last_trainer_seq=0)
    return end.exit_code


def _record_exit(attempt_dir: AttemptDir, end: _End, *, step: int, last_trainer_seq: int) -> None:
    record = ExitRecord(
        reason=end.reason,
        message=end.message[:MAX_MESSAGE],
        step=step,
        last_trainer_seq=last_trainer_seq,
        at=datetime.now(UTC),
    )
    write_exit(attempt_dir, record)


class _Progress:
    """The step reached, also after an error."""

    work: Work | None = None

    @property
    def step(self) -> int:
        return self.work.step if self.work else 0


async def _train(
    launch: Launch,
    store: BlobStore,
    journal: Journal,
    stop: Stop,
    clock: Clock,
    progress: _Progress,
) -> _End:
    try:
        with space_checked(launch.run_dir):
            attempt = Attempt(
                spec=_read_spec(launch.spec),
                dir=launch.dir,
                store=store,
                journal=journal,
                stop=stop,
                clock=clock,
                resume_from=_checkpoint_key(launch, store),
                on_blocked=lambda late: _leave_blocked(launch.dir, journal, progress, late),
            )
            _track(attempt, launch.environ)
            await check_provider(attempt.spec)
            progress.work = work = build_work(attempt)
            await work.train()
    except StopRequested:
        message = f"stopped on request after step {progress.step}"
        return _End(reason=ReasonCode.RUNNER_STOPPED, message=message, exit_code=0)
    except AttemptSuperseded as error:
        return _failed(error, EXIT_SUPERSEDED)
    except TrainerError as error:
        return _failed(error, _exit_code(error))
    except StoreError as error:
        return _failed(StoreUnavailable(str(error)), EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - the task edge: an attempt always says how it ended
        _log.exception("the trainer crashed")
        message = f"{type(error).__name__}: {error}"
        return _End(reason=ReasonCode.TRAINER_CRASHED, message=message, exit_code=EXIT_FAILED)
    finally:
        if progress.work:
            await _close(progress.work)
    return _End(reason=ReasonCode.COMPLETED, message=work.summary(), exit_code=0)


def build_work(attempt: Attempt) -> Work:
    """Make what the spec's kind of run does; each imports what it needs (`trainer.loading`).

    Raises:
        TrainerError: as the kind's own builder.
    """
    build: Callable[[Attempt], Work]
    with importing():
        if attempt.spec.kind == "probe":
            from trainer.probing.wiring import build_prober as build  # noqa: PLC0415
        elif attempt.spec.kind == "preview":
            from trainer.previewing import build_preview as build  # noqa: PLC0415
        elif attempt.spec.kind == "validate":
            from trainer.validation.wiring import build_validator as build  # noqa: PLC0415
        else:
            from trainer.wiring import build_trainer as build  # noqa: PLC0415
    return build(attempt)


async def _close(work: Work) -> None:
    """Close what the attempt holds; what hangs there too is left behind."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await work.close()
    except TimeoutError:
        _log.warning("what the trainer held did not close in %g s", CLOSE_S)


def _leave_blocked(
    attempt_dir: AttemptDir, journal: Journal, progress: _Progress, late: StepTimeout
) -> None:
    """Leave from a thread, because the event loop hangs; only the exit record can say why."""
    end = _failed(late, EXIT_HUNG)
    _record_exit(attempt_dir, end, step=progress.step, last_trainer_seq=journal.last_seq)
    os._exit(EXIT_HUNG)


def _exit_code(error: TrainerError) -> int:
    """Whether a thread may hang: in what timed out, or in what was to be saved after `error`."""
    hangs = isinstance(error, StepTimeout) or isinstance(error.__cause__, StepTimeout)
    return EXIT_HUNG if hangs else EXIT_FAILED


def _failed(error: TrainerError, exit_code: int) -> _End:
    """One clear line instead of a traceback."""
    sys.stderr.write(f"error: {error} [{error.reason}]\n")
    return _End(reason=ReasonCode(error.reason), message=str(error), exit_code=exit_code)


def _read_spec(path: Path) -> RunSpec:
    try:
        return RunSpec.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise SpecError(f"there is no spec at {path}") from error
    except OSError as error:
        raise SpecError(f"the spec at {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = (f"{each.pointer or '/'}: {each.message}" for each in explain(error))
        raise SpecError("; ".join(problems)) from error


def _checkpoint_key(launch: Launch, store: BlobStore) -> str | None:
    """The checkpoint to go on from; the run's newest where that is one of its own, and deleted."""
    given, run_id = launch.resume_from, launch.dir.run_dir.name
    if given == LATEST:
        newest = find_latest(store, run_id)
        if newest is None:
            raise CheckpointError(f"{run_id} has no complete checkpoint")
        return newest
    is_own = given is not None and given.startswith(f"{run_key(run_id)}/")
    if is_own and not store.exists(f"{given}/{MANIFEST}"):
        newest = find_latest(store, run_id)
        _log.warning("%s is not there any more; the newest checkpoint is %s", given, newest)
        return newest or given
    return given


def _sinks(launch: Launch, store: BlobStore, stop: Stop, mask: Mask) -> list[Sink]:
    sinks: list[Sink] = [Segments(store, launch.dir, mask)]
    url = launch.environ.get(INGEST_URL)
    if url:
        sinks.append(
            Push(
                launch.dir.events,
                url=url,
                token=launch.environ.get(TOKEN, ""),
                on_superseded=stop.supersede,
            )
        )
    return sinks


def _track(attempt: Attempt, environ: Mapping[str, str]) -> None:
    plan = WandbPlan(spec=attempt.spec, attempt_dir=attempt.dir, resume_from=attempt.resume_from)
    sink = tracking_sink(plan, environ)
    if sink is not None:
        attempt.journal.add(sink)
