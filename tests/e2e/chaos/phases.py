"""How a run gets into each phase, and what keeps it there while a part is hit.

Nothing waits for a time to pass: a phase is entered when its status, event or file is there, and
stays because a process that would end it stands still. Where that is the part that is hit, the blow
falls on it as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

import psutil

from hillclimb.protocol.rundir import MANIFEST, checkpoint_name, run_key
from tests.e2e.chaos.cells import Phase
from tests.e2e.chaos.specs import STEPS
from tests.e2e.chaos.stage import Stage, crept_to, family, frozen

FIRST_HIT_STEP = 2
"""A checkpoint is under way or complete, and most of the run is still to come."""
CLAIM_S = 0.1
"""The service answers a claim in less."""
STEPPING_S = 0.02
"""Less than a trainer needs for a step, or to end once it has written that it does."""
SENDING_S = 0.1
"""A trainer sends what it has written in less."""


def service_process(stage: Stage, name: str) -> psutil.Process:
    return psutil.Process(stage.service.pid(name))


@contextmanager
def queued(stage: Stage) -> Iterator[None]:
    """Another run has the only slot; it is cancelled at the end."""
    assert stage.blocker_id
    stage.until_status("queued")
    yield
    assert stage.run()["status"] == "queued"
    for process in replace(stage, run_id=stage.blocker_id).live_trainers():
        process.resume()
    stage.service.ask(stage.blocker_id, "cancel")
    stage.until_status("cancelled", run_id=stage.blocker_id)


@contextmanager
def provisioning(stage: Stage) -> Iterator[None]:
    """The runner has stood still since before the run was submitted."""
    with frozen(service_process(stage, "runner")):
        stage.until_status("provisioning")
        yield


@contextmanager
def claiming(stage: Stage) -> Iterator[None]:
    """The runner stands still with a claim that the service has carried out."""
    runner = service_process(stage, "runner")
    # A claim that the service has not answered when one looks is a trainer after the next slice.
    with crept_to(runner, lambda: stage.run()["status"] == "starting", settles_s=CLAIM_S):
        assert stage.live_trainers() == []
        yield


@contextmanager
def starting(stage: Stage) -> Iterator[None]:
    """The trainer imports its libraries."""
    stage.until_status("starting")
    with frozen(stage.await_trainer()):
        assert stage.run()["status"] == "starting"
        yield


@contextmanager
def running(stage: Stage) -> Iterator[None]:
    """Among the steps; the trainer goes on meanwhile."""
    stage.await_trainer()
    stage.until(lambda: stage.steps() >= FIRST_HIT_STEP)
    assert stage.run()["status"] == "running"
    yield


@contextmanager
def evaluating(stage: Stage) -> Iterator[None]:
    """The trainer stands still in an evaluation, of which no result is written."""
    trainer = stage.await_trainer()
    stage.until(lambda: stage.steps() >= 1)
    with crept_to(trainer, lambda: is_evaluating(stage)):
        yield


def is_evaluating(stage: Stage) -> bool:
    last = stage.written()[-1]
    return (last["type"], last.get("phase")) == ("phase.started", "eval")


@contextmanager
def checkpointing(stage: Stage) -> Iterator[None]:
    """The trainer stands still among the files of a checkpoint, which has no manifest."""
    trainer = stage.await_trainer()
    stage.until(lambda: stage.steps() >= 1)
    with crept_to(trainer, lambda: is_checkpointing(stage)):
        yield


def is_checkpointing(stage: Stage) -> bool:
    events = stage.written()
    begun = {e["step"] for e in events if e.get("phase") == "checkpoint"}
    saved = {e["step"] for e in events if e["type"] == "checkpoint.saved"}
    blobs = stage.service.options.state_dir / "blobs"
    for step in begun - saved:
        files, attempt = stage.where().checkpoint(step), stage.where().attempt
        manifest = blobs / run_key(stage.run_id, checkpoint_name(step, attempt), MANIFEST)
        return any(files.rglob("*.*")) and not manifest.exists()
    return False


@contextmanager
def recovering(stage: Stage) -> Iterator[None]:
    """The trainer was killed, and the worker that would schedule the next attempt stands still.

    It would also fetch the trainer's last events: there are none that the API does not have.
    """
    trainer = stage.await_trainer()
    stage.until(lambda: stage.steps() >= FIRST_HIT_STEP)
    with (
        crept_to(trainer, stage.is_all_sent, slice_s=SENDING_S),
        frozen(*family(service_process(stage, "worker"))),
    ):
        trainer.kill()
        stage.until_status("recovering")
        yield


@contextmanager
def finalizing(stage: Stage) -> Iterator[None]:
    """The trainer has done every step; the runner that would report its end stands still."""
    trainer = stage.await_trainer()
    with ExitStack() as kept:
        # On a busy machine the last steps are over before the test looks twice.
        with crept_to(trainer, lambda: stage.steps() >= STEPS - 1, slice_s=STEPPING_S):
            kept.enter_context(frozen(service_process(stage, "runner")))
        stage.until_status("finalizing")
        yield


@contextmanager
def leaving(stage: Stage) -> Iterator[None]:
    """The trainer stands still as soon as it has written that it has done every step."""
    trainer = stage.await_trainer()

    def has_written_its_end() -> bool:
        return any(each["type"] == "trainer.ended" for each in stage.written())

    with crept_to(trainer, has_written_its_end, slice_s=STEPPING_S):
        yield


def stopping(request: str, status: str) -> Callable[[Stage], AbstractContextManager[None]]:
    """The trainer stands still before it is asked to save and leave."""

    @contextmanager
    def entered(stage: Stage) -> Iterator[None]:
        trainer = stage.await_trainer()
        stage.until(lambda: stage.steps() >= FIRST_HIT_STEP)
        with frozen(trainer):
            stage.service.ask(stage.run_id, request)
            stage.until_status(status)
            yield

    return entered


REACH: Mapping[Phase, Callable[[Stage], AbstractContextManager[None]]] = {
    Phase.QUEUED: queued,
    Phase.PROVISIONING: provisioning,
    Phase.CLAIMING: claiming,
    Phase.STARTING: starting,
    Phase.RUNNING: running,
    Phase.EVALUATING: evaluating,
    Phase.CHECKPOINTING: checkpointing,
    Phase.RECOVERING: recovering,
    Phase.LEAVING: leaving,
    Phase.FINALIZING: finalizing,
    Phase.CANCELLING: stopping("cancel", "cancelling"),
    Phase.PAUSING: stopping("pause", "pausing"),
}
