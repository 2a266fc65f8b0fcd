"""The runs that a spec starts from or imitates: found, checked and written out."""

from __future__ import annotations

from sqlalchemy.orm import Session

from api.runs import store
from api.runs.errors import CheckpointMisfit, CheckpointNotFound
from api.tables import Run
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.model import CheckpointSource, checkpoint_source

MAX_ANCESTORS = 100
"""Runs in a row that each start from the one before (count)."""


def resolve_warm_start(session: Session, spec: RunSpec, project_id: str) -> RunSpec:
    """Return the spec with step and attempt of the checkpoint that `model.source` names.

    Raises:
        RunNotFound: it, or `sft.rollouts_of`, names no run of the project.
        RunImported: that run was imported.
        CheckpointNotFound: the run has no such complete checkpoint.
        CheckpointMisfit: the rollouts to imitate have the tokens of another model.
    """
    named = checkpoint_source(spec.model.source)
    if named is not None:
        source = str(_complete(session, named, project_id))
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})
    if spec.kind == "sft" and spec.sft.rollouts_of is not None:
        _check_tokens(session, spec, spec.sft.rollouts_of, project_id)
    return spec


def _complete(session: Session, named: CheckpointSource, project_id: str) -> CheckpointSource:
    run = store.get_run(session, project_id, named.run_id)
    store.refuse_imported(run, "give its weights to another run")
    if named.step is None:
        checkpoint = store.newest_checkpoint(session, run.id)
    elif named.attempt is None:
        checkpoint = store.checkpoint_at(session, run.id, named.step)
    else:
        checkpoint = store.find_checkpoint(
            session, project_id, run.id, step=named.step, attempt=named.attempt
        )
    if checkpoint is None:
        at = "" if named.step is None else f" at step {named.step}"
        raise CheckpointNotFound(
            f"model.source is {str(named)!r}, and run {run.id} has no complete checkpoint{at}."
        )
    return CheckpointSource(run_id=run.id, step=checkpoint.step, attempt=checkpoint.attempt)


def _check_tokens(session: Session, spec: RunSpec, run_id: str, project_id: str) -> None:
    """Refuse rollouts of a run whose policy had another tokenizer, as far as specs tell."""
    run = store.get_run(session, project_id, run_id)
    store.refuse_imported(run, "be imitated")
    own, theirs = spec.model.source, str(run.spec["model"]["source"])
    if _origin(session, own, project_id) != _origin(session, theirs, project_id):
        raise CheckpointMisfit(
            f"The rollouts of run {run_id} are tokens of {theirs}, and this run trains {own}: set"
            f" model.source to {theirs}, or to run:{run_id}."
        )


def _origin(session: Session, source: str, project_id: str) -> str:
    """Return the model that a chain of runs started from."""
    for _ in range(MAX_ANCESTORS):
        named = checkpoint_source(source)
        run = None if named is None else session.get(Run, named.run_id)
        if run is None or run.project_id != project_id:
            return source
        source = str(run.spec["model"]["source"])
    return source
