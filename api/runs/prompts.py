"""What the agents of a run read first, as its trainer told it, and whether it changed."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.runs.journal import SERVICE, Draft
from api.tables import Run, RunEvent
from trainer.contract.events import PromptsRendered

RENDERED = "prompts.rendered"


def newest_prompts(session: Session, run_id: str) -> RunEvent | None:
    """Return the run's newest event about its prompts, or null before the first."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == RENDERED)
    return session.scalar(query.order_by(RunEvent.seq.desc()).limit(1))


def changed_prompts(
    session: Session, run: Run, attempt: int, event: PromptsRendered
) -> Draft | None:
    """Return a warning if the prompts are not those of the run's last attempt or of its parent.

    Null also where nothing was told before, or where the parent has other tasks.
    """
    before = newest_prompts(session, run.id) or _of_parent(session, run)
    if before is None:
        return None
    known = before.data["environments"]
    changed = sorted(
        env_key
        for env_key, prompts in event.environments.items()
        if env_key in known and known[env_key]["digest"] != prompts.digest
    )
    if not changed:
        return None
    versions = (before.data["version"], event.version)
    wording = f" (wording {versions[0]} then, {versions[1]} now)" if len({*versions}) > 1 else ""
    whose = "an earlier attempt" if before.run_id == run.id else before.run_id
    message = (
        f"the prompts of {', '.join(changed)} are not those of {whose}{wording}: figures from then"
        " and now do not compare"
    )
    data = {"step": event.step, "code": "prompts_changed", "message": message}
    return Draft(type="run.warning", actor=SERVICE, at=event.at, attempt=attempt, data=data)


def _of_parent(session: Session, run: Run) -> RunEvent | None:
    """The prompts of the run that this one goes on from, if it has the same tasks."""
    source = run.spec["lineage"]["resumed_from"]
    parent = session.get(Run, source["run_id"]) if source else None
    if parent is None or parent.spec["data"] != run.spec["data"]:
        return None
    return newest_prompts(session, parent.id)
