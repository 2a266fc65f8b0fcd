"""Initial prompts of a run's agents as reported by its trainer, and warnings of changes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.runs.journal import SERVICE, Draft
from api.tables import Run, RunEvent
from hillclimb.protocol.events import PromptsRendered

RENDERED = "prompts.rendered"


def newest_prompts(session: Session, run_id: str) -> RunEvent | None:
    """Return the run's newest event about its prompts, or null before the first."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == RENDERED)
    return session.scalar(query.order_by(RunEvent.seq.desc()).limit(1))


def changed_prompts(
    session: Session, run: Run, attempt: int, event: PromptsRendered
) -> Draft | None:
    """Return a warning if the prompts differ from those of an earlier attempt or the parent run.

    Compares each environment with the newest attempt that reported it. Null also without an earlier
    report, or if the parent has other tasks.
    """
    before = _reported(session, run.id)
    source = "an earlier attempt" if before else ""
    if not before:
        before, source = _of_parent(session, run)
    changed = sorted(
        env_key
        for env_key, prompts in event.environments.items()
        if env_key in before
        # A probe has only some of its parent's tasks: digests then differ without a change.
        and before[env_key].num_tasks == prompts.num_tasks
        and before[env_key].digest != prompts.digest
    )
    if not changed:
        return None
    versions = sorted({before[env_key].version for env_key in changed} - {event.version})
    wording = f" (wording {', '.join(versions)} then, {event.version} now)" if versions else ""
    message = (
        f"the prompts of {', '.join(changed)} are not those of {source}{wording}: do not compare"
        " figures from then and now"
    )
    data = {"step": event.step, "code": "prompts_changed", "message": message}
    return Draft(type="run.warning", actor=SERVICE, at=event.at, attempt=attempt, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendered:
    """A trainer's report of an environment's prompts."""

    digest: str
    num_tasks: int
    version: str


def _reported(session: Session, run_id: str) -> dict[str, _Rendered]:
    """Return the newest report of each environment: an attempt may lack some of them."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == RENDERED)
    return {
        env_key: _Rendered(
            digest=prompts["digest"], num_tasks=prompts["num_tasks"], version=event.data["version"]
        )
        for event in session.scalars(query.order_by(RunEvent.seq))
        for env_key, prompts in event.data["environments"].items()
    }


def _of_parent(session: Session, run: Run) -> tuple[dict[str, _Rendered], str]:
    """Return the prompts and the id of the parent run, if it has the same tasks."""
    source = run.spec["lineage"]["resumed_from"]
    parent = session.get(Run, source["run_id"]) if source else None
    if parent is None or parent.spec["data"] != run.spec["data"]:
        return {}, ""
    return _reported(session, parent.id), parent.id
