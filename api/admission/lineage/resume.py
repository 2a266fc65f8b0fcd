"""Resumes a run from its newest checkpoint: the same run if it is paused, else a new run."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from api.admission.submit import submit
from api.clusters import budgets
from api.runs import store
from api.runs.errors import InvalidTransition, NothingToResume
from api.runs.status import TERMINAL, DesiredState, RunStatus
from api.runs.stored_spec import spec_of
from api.runs.transitions import move
from api.tables import Run
from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import LEARNING_KINDS
from hillclimb.spec.training.lineage import ForkedFrom, LineageSpec, ResumedFrom


def resume(session: Session, run: Run, *, actor: str, now: datetime) -> Run:
    """Resume from the newest checkpoint: the same run if it is paused, a new run if it ended.

    The new run gets the remaining budget, less the share of earlier resumes of the same run.

    Raises:
        RunImported: the run was imported.
        NothingToResume: no complete checkpoint, or the run ended and trains nothing.
        InvalidTransition: the run is still active, has finished every step, or has no budget left.
        SpecOutdated: this version rejects its spec.
    """
    store.refuse_imported(run, "be resumed")
    status = RunStatus(run.status)
    if status is RunStatus.PAUSED:
        _refuse_exhausted(session, run, now=now)
        run.num_failures = 0
        run.resumed_after = run.attempt
        run.pause_code = run.pause_message = None
        run.desired_state = DesiredState.RUNNING.value
        move(session, run, RunStatus.QUEUED, now=now, actor=actor)
        return run
    if status not in TERMINAL:
        raise InvalidTransition(f"Run {run.id} is {status}: only a paused or ended run resumes.")
    kind = run.spec["kind"]
    if kind not in LEARNING_KINDS:
        raise NothingToResume(
            f"Run {run.id} is of kind {kind}, which saves no checkpoints: submit its spec again"
            " instead."
        )
    if status is RunStatus.SUCCEEDED:
        raise InvalidTransition(
            f"Run {run.id} finished every step. To train on, submit its spec with a larger"
            " schedule.total_steps and lineage.resumed_from set to its last checkpoint."
        )
    checkpoint = store.newest_checkpoint(session, run.id)
    if checkpoint is None:
        raise NothingToResume(
            f"Run {run.id} saved no checkpoint before it ended: submit its spec again instead."
        )
    source = ResumedFrom(run_id=run.id, step=checkpoint.step, attempt=checkpoint.attempt)
    spec = spec_of(run)
    _refuse_exhausted(session, run, now=now)
    update = {
        "lineage": LineageSpec(resumed_from=source, forked_from=_parent(session, spec)),
        "budget": budgets.remaining_of(session, run, now=now),
    }
    spec = spec.model_copy(update=update)
    return submit(session, spec, project_id=run.project_id, actor=actor, now=now, is_resumed=True)


def _parent(session: Session, spec: RunSpec) -> ForkedFrom | None:
    """Return the run that it was forked from; null where that one was deleted."""
    parent = spec.lineage.forked_from
    if parent is None or session.get(Run, parent.run_id) is None:
        return None
    return parent


def _refuse_exhausted(session: Session, run: Run, *, now: datetime) -> None:
    for allowance in budgets.allowances(session, run, now=now):
        if allowance.is_used_up:
            raise InvalidTransition(
                f"The budget of run {run.id} is used up ({allowance.summary()}): extend it"
                f" (POST /v1/runs/{run.id}/budget, hillclimb budget), then resume."
            )
