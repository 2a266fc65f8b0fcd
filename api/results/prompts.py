"""Initial prompts of a run's agents as its trainer reported them, and their changes."""

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
    """Return a warning if the prompts are not those of the run's earlier attempts, or its parent's.

    Each environment is compared with the newest attempt that knew it. Null also where nothing was
    told before, or where the parent has other tasks.
    """
    before = _known(session, run.id)
    whose = "an earlier attempt" if before else ""
    if not before:
        before, whose = _of_parent(session, run)
    changed = sorted(
        env_key
        for env_key, prompts in event.environments.items()
        if env_key in before
        # A probe has some of its parent's tasks: that says nothing of their prompts.
        and before[env_key].num_tasks == prompts.num_tasks
        and before[env_key].digest != prompts.digest
    )
    if not changed:
        return None
    versions = sorted({before[env_key].version for env_key in changed} - {event.version})
    wording = f" (wording {', '.join(versions)} then, {event.version} now)" if versions else ""
    message = (
        f"the prompts of {', '.join(changed)} are not those of {whose}{wording}: figures from then"
        " and now do not compare"
    )
    data = {"step": event.step, "code": "prompts_changed", "message": message}
    return Draft(type="run.warning", actor=SERVICE, at=event.at, attempt=attempt, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendered:
    """A trainer's report of an environment's prompts."""

    digest: str
    num_tasks: int
    version: str


def _known(session: Session, run_id: str) -> dict[str, _Rendered]:
    """Return what was told last of each environment: not every attempt could ask all of them."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == RENDERED)
    return {
        env_key: _Rendered(
            digest=prompts["digest"], num_tasks=prompts["num_tasks"], version=event.data["version"]
        )
        for event in session.scalars(query.order_by(RunEvent.seq))
        for env_key, prompts in event.data["environments"].items()
    }


def _of_parent(session: Session, run: Run) -> tuple[dict[str, _Rendered], str]:
    """The prompts of the run that this one goes on from, and its name, if it has the same tasks."""
    source = run.spec["lineage"]["resumed_from"]
    parent = session.get(Run, source["run_id"]) if source else None
    if parent is None or parent.spec["data"] != run.spec["data"]:
        return {}, ""
    return _known(session, parent.id), parent.id
