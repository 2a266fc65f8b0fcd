"""Runs one attempt as a process: from its options to `exit.json` and an exit code."""

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

from pydantic import TypeAdapter, ValidationError

from hillclimb.blobs.base import BlobStore, StoreError, StoreRefused
from hillclimb.blobs.locate import open_store
from hillclimb.datasets.fit_schedule import fit_generated
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import TrainerEnded
from hillclimb.protocol.rundir import MANIFEST, AttemptDir, ExitRecord, run_key
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.run import RunSpec
from trainer.attempt.context import AttemptContext, Work
from trainer.attempt.exit_record import MAX_MESSAGE, reserve_exit, write_exit
from trainer.attempt.scratch import cleanup_stale
from trainer.attempt.sinks.base import Sink
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.push import Push
from trainer.attempt.sinks.segments import Segments
from trainer.attempt.sinks.spans import tracing_sink
from trainer.attempt.sinks.tracker_choice import add_trackers
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.stop_signal import StopRequested, StopSignal
from trainer.attempt.storage import raise_storage_full
from trainer.attempt.timing import Clock
from trainer.envs.choose import check_provider
from trainer.errors import (
    AttemptSuperseded,
    CheckpointError,
    SpecError,
    StepTimeout,
    StoreUnavailable,
    TrainerError,
)
from trainer.inputs.accepted_paths import refuse_changed
from trainer.jobs.train.checkpoints import find_latest

LATEST = "latest"
"""Value of `--resume-from` for this run's newest complete checkpoint."""
DRAIN_S = 10.0
CLOSE_S = 30.0
EXIT_FAILED, EXIT_SUPERSEDED, EXIT_HUNG = 1, 3, 4
SUPERVISED = "HILLCLIMB_SUPERVISED"
"""`1`: a node supervises this process (`trainer.node`)."""
INGEST_URL, TOKEN, BLOBS_URL = (
    "HILLCLIMB_INGEST_URL",
    "HILLCLIMB_ATTEMPT_TOKEN",
    "HILLCLIMB_BLOBS_URL",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Command-line options and environment variables of an attempt."""

    spec: Path
    run_dir: Path
    attempt: int
    resume_from: str | None
    environ: Mapping[str, str]

    @property
    def dir(self) -> AttemptDir:
        """Local files of the attempt."""
        return AttemptDir(self.run_dir.resolve(), self.attempt)

    @property
    def blobs_url(self) -> str:
        """URL of the blob store; by default `blobs/` beside the directory of all runs."""
        return self.environ.get(BLOBS_URL) or str(self.dir.run_dir.parent.parent / "blobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    reason: ReasonCode
    message: str
    exit_code: int


async def run_attempt(options: ProcessOptions) -> int:
    """Train one attempt and return the exit code.

    0: trained to the end, or stopped on request after a checkpoint. 1: failed; `exit.json` has the
    reason. 3: superseded; nothing more was written to the store. 4: failed, and a thread may hang
    forever: the process must exit without waiting for it.
    """
    stop, clock = StopSignal(), Clock()
    stop.listen(is_supervised=options.environ.get(SUPERVISED) == "1")
    attempt_dir = options.dir
    attempt_dir.path.mkdir(parents=True, exist_ok=True)
    attempt_dir.exit.unlink(missing_ok=True)
    reserve_exit(attempt_dir)
    await asyncio.to_thread(cleanup_stale, attempt_dir)
    try:
        store = await asyncio.to_thread(_open_checked, options.blobs_url)
    except StoreError as error:
        return _record_store_error(attempt_dir, f"{BLOBS_URL}: {error}")
    redactor = Redactor.of(options.environ)
    sinks = _sinks(options, store, stop, redactor)
    spans = tracing_sink(attempt_dir, options.environ)
    sinks += [] if spans is None else [spans]
    journal = EventJournal(JsonlFile(attempt_dir.events, redactor), sinks)
    progress = _Progress()
    end = await _train(options, store, journal, stop, clock, progress)
    if end.reason is ReasonCode.ATTEMPT_SUPERSEDED:
        journal.abandon()
    else:
        with suppress(OSError):
            journal.emit(
                TrainerEnded(
                    step=progress.step,
                    reason=end.reason,
                    message=end.message,
                    training_seconds=clock.training_s,
                    eval_seconds=clock.eval_s,
                )
            )
        with suppress(OSError):
            if not await asyncio.to_thread(journal.close, drain_s=DRAIN_S):
                _log.warning("some events are not yet in the service or the store")
    _record_exit(attempt_dir, end, step=progress.step, last_trainer_seq=journal.last_seq)
    return end.exit_code


def _open_checked(url: str) -> BlobStore:
    """Open the store; one that is unavailable for a while does not prevent the start.

    Raises:
        StoreError: the address is invalid, or the store rejects us.
    """
    store = open_store(url)
    try:
        store.check()
    except StoreRefused:
        raise
    except StoreError as error:
        _log.warning("the store does not answer yet: %s", error)
    return store


def _record_store_error(attempt_dir: AttemptDir, problem: str) -> int:
    """End an attempt that has no store: only the exit record can give the reason."""
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
    """The last completed step, also after an error."""

    work: Work | None = None

    @property
    def step(self) -> int:
        return self.work.step if self.work else 0


async def _train(
    options: ProcessOptions,
    store: BlobStore,
    journal: EventJournal,
    stop: StopSignal,
    clock: Clock,
    progress: _Progress,
) -> _End:
    try:
        with raise_storage_full(options.run_dir):
            context = AttemptContext(
                spec=_read_spec(options.spec),
                dir=options.dir,
                store=store,
                journal=journal,
                stop=stop,
                clock=clock,
                resume_from=_checkpoint_key(options, store),
                manifests=_read_manifests(options.dir.manifests),
                on_blocked=lambda timeout: _exit_blocked(options.dir, journal, progress, timeout),
            )
            _add_tracking(context, options.environ)
            await check_provider(context.spec, options.dir)
            with stop.interrupts():
                work = build_work(context)
            progress.work = work
            await work.train()
            # A stop that ends this process while it closes finds a run that is complete.
            _record_exit(
                options.dir,
                _completed(work),
                step=work.step,
                last_trainer_seq=journal.last_seq,
            )
    except StopRequested:
        when = f"after step {progress.step}" if progress.work else "while it started"
        message = f"stopped on request {when}"
        return _End(reason=ReasonCode.RUNNER_STOPPED, message=message, exit_code=0)
    except AttemptSuperseded as error:
        return _failed(error, EXIT_SUPERSEDED)
    except TrainerError as error:
        return _failed(error, _exit_code(error))
    except StoreError as error:
        return _failed(StoreUnavailable(str(error)), EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - the task edge: an attempt always records its end
        _log.exception("the trainer crashed")
        message = f"{type(error).__name__}: {error}"
        return _End(reason=ReasonCode.TRAINER_CRASHED, message=message, exit_code=EXIT_FAILED)
    finally:
        if progress.work:
            await _close(progress.work)
    return _completed(work)


def _completed(work: Work) -> _End:
    return _End(reason=ReasonCode.COMPLETED, message=work.summary(), exit_code=0)


def build_work(context: AttemptContext) -> Work:
    """Build the job of the spec's kind; each kind imports its own libraries.

    Raises:
        TrainerError: as the kind's own builder.
    """
    build: Callable[[AttemptContext], Work]
    with context.startup.phase("imports"), gc_paused_import():
        if context.spec.kind == "probe":
            from trainer.jobs.probe.wiring import build_prober as build  # noqa: PLC0415
        elif context.spec.kind == "preview":
            from trainer.jobs.preview.preview import build_preview as build  # noqa: PLC0415
        elif context.spec.kind == "validate":
            from trainer.jobs.validate.wiring import build_validator as build  # noqa: PLC0415
        elif context.spec.kind == "sft":
            from trainer.jobs.sft.wiring import build_imitator as build  # noqa: PLC0415
        else:
            from trainer.jobs.train.wiring import build_trainer as build  # noqa: PLC0415
    return build(context)


async def _close(work: Work) -> None:
    """Close the job within `CLOSE_S`; if it hangs, abandon it."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await work.close()
    except TimeoutError:
        _log.warning("the job did not close within %g s", CLOSE_S)


def _exit_blocked(
    attempt_dir: AttemptDir, journal: EventJournal, progress: _Progress, timeout: StepTimeout
) -> None:
    """Exit from a thread, because the event loop hangs; only the exit record gives the reason."""
    end = _failed(timeout, EXIT_HUNG)
    _record_exit(attempt_dir, end, step=progress.step, last_trainer_seq=journal.last_seq)
    os._exit(EXIT_HUNG)


def _exit_code(error: TrainerError) -> int:
    """Exit code of a failure: `EXIT_HUNG` if a thread may hang, in a step or a later save."""
    hangs = isinstance(error, StepTimeout) or isinstance(error.__cause__, StepTimeout)
    return EXIT_HUNG if hangs else EXIT_FAILED


def _failed(error: TrainerError, exit_code: int) -> _End:
    """Write one line to standard error instead of a traceback."""
    sys.stderr.write(f"error: {error} [{error.reason}]\n")
    return _End(reason=ReasonCode(error.reason), message=str(error), exit_code=exit_code)


def _read_spec(path: Path) -> RunSpec:
    try:
        spec = fit_generated(RunSpec.model_validate_json(path.read_bytes())).spec
    except FileNotFoundError as error:
        raise SpecError(f"there is no spec at {path}") from error
    except OSError as error:
        raise SpecError(f"the spec at {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = (f"{item.pointer or '/'}: {item.message}" for item in explain(error))
        raise SpecError("; ".join(problems)) from error
    refuse_changed(spec)
    return spec


def _read_manifests(path: Path) -> dict[str, str] | None:
    """Read the digests that the launcher wrote; None where it wrote none.

    Raises:
        SpecError: the file is no such list: without it nothing would be compared.
    """
    try:
        return TypeAdapter(dict[str, str]).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise SpecError(f"the digests at {path} cannot be read: {error}") from error


def _checkpoint_key(options: ProcessOptions, store: BlobStore) -> str | None:
    """Key of the checkpoint to resume from; if it is the run's own and deleted, its newest one."""
    key, run_id = options.resume_from, options.dir.run_dir.name
    if key == LATEST:
        newest = find_latest(store, run_id)
        if newest is None:
            raise CheckpointError(f"{run_id} has no complete checkpoint")
        return newest
    is_own = key is not None and key.startswith(f"{run_key(run_id)}/")
    if is_own and not store.exists(f"{key}/{MANIFEST}"):
        newest = find_latest(store, run_id)
        _log.warning("%s was deleted; the newest checkpoint is %s", key, newest)
        return newest or key
    return key


def _sinks(
    options: ProcessOptions, store: BlobStore, stop: StopSignal, redactor: Redactor
) -> list[Sink]:
    sinks: list[Sink] = [Segments(store, options.dir, redactor)]
    url = options.environ.get(INGEST_URL)
    if url:
        sinks.append(
            Push(
                options.dir.events,
                url=url,
                token=options.environ.get(TOKEN, ""),
                on_superseded=stop.fence,
            )
        )
    return sinks


def _add_tracking(context: AttemptContext, environ: Mapping[str, str]) -> None:
    plan = TrackingPlan(spec=context.spec, attempt_dir=context.dir, resume_from=context.resume_from)
    add_trackers(context.journal, plan, context.store, environ)
