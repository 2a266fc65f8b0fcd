"""Rows of issues: created, changed and closed, each in the caller's project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from api.results.errors import IssueClosed, IssueNotFound, IssueRejected, NoSuchEval
from api.results.evals.store import list_evals
from api.results.issues.request import IssueChanges, IssueSpec
from api.runs.store import get_run, keep_runs
from api.tables import Issue, Project
from api.tables.ids import new_id

MAX_LEDGER = 200
"""Issues of the Markdown ledger, the newest ones."""
MAX_ISSUES = 1000
"""Issues of one project, closed ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueFilters:
    """The issues to list."""

    state: Literal["open", "closed", "all"] = "all"
    severity: str | None = None
    env_key: str | None = None


def create_issue(
    session: Session, spec: IssueSpec, *, project_id: str, actor: str, now: datetime
) -> Issue:
    """Store an issue under the project's next number.

    Raises:
        IssueRejected: the ledger is full.
        NoSuchEval: a run has no evaluation at the step.
        RunNotFound: the project has no such run.
    """
    # The lock numbers issues of one project one after the other.
    session.execute(
        select(Project.id).where(Project.id == project_id).with_for_update(key_share=True)
    )
    last = session.scalar(select(func.max(Issue.number)).where(Issue.project_id == project_id)) or 0
    if last >= MAX_ISSUES:
        raise IssueRejected(
            f"The project has {MAX_ISSUES:,} issues, the most of a ledger: change one that exists."
        )
    places = _places(session, project_id, {"baseline": spec.baseline, "after": spec.after})
    issue = Issue(
        id=new_id("iss"),
        project_id=project_id,
        number=last + 1,
        created_by=actor,
        created_at=now,
        updated_at=now,
        **spec.model_dump(mode="json", exclude={"baseline", "after"}),
        **places,
    )
    session.add(issue)
    session.flush()
    return issue


def get_issue(session: Session, project_id: str, issue_id: str) -> Issue:
    """Return the issue; raises IssueNotFound also for those of other projects."""
    issue = session.get(Issue, issue_id)
    if issue is None or issue.project_id != project_id:
        raise IssueNotFound(f"There is no issue {issue_id!r}: `hillclimb issue list` names all.")
    return issue


def list_issues(
    session: Session,
    project_id: str,
    filters: IssueFilters,
    *,
    before: Issue | None = None,
    limit: int,
) -> Sequence[Issue]:
    """Return up to `limit` issues, newest first, older than `before`."""
    query = select(Issue).where(Issue.project_id == project_id)
    if filters.state != "all":
        is_open = Issue.closed_at.is_(None)
        query = query.where(is_open if filters.state == "open" else ~is_open)
    if filters.severity is not None:
        query = query.where(Issue.severity == filters.severity)
    if filters.env_key is not None:
        query = query.where(Issue.env_key == filters.env_key)
    if before is not None:
        place = tuple_(Issue.created_at, Issue.id)
        query = query.where(place < (before.created_at, before.id))
    query = query.order_by(Issue.created_at.desc(), Issue.id.desc())
    return session.scalars(query.limit(limit)).all()


def change_issue(session: Session, issue: Issue, changes: IssueChanges, *, now: datetime) -> None:
    """Change the fields that the request has.

    Raises:
        IssueClosed: the issue is closed.
        NoSuchEval: a run has no evaluation at the step.
        RunNotFound: the project has no such run.
    """
    _lock_open(session, issue)
    sent = changes.model_dump(mode="json", exclude_unset=True)
    named: dict[str, str | None] = {
        name: sent.pop(name) for name in ("baseline", "after") if name in sent
    }
    for name, value in {**sent, **_places(session, issue.project_id, named)}.items():
        setattr(issue, name, value)
    issue.updated_at = now


def close_issue(
    session: Session, issue: Issue, *, resolution: str, actor: str, now: datetime
) -> None:
    """Close the issue: it no longer changes; raises IssueClosed if it is closed already."""
    _lock_open(session, issue)
    issue.resolution, issue.closed_by = resolution, actor
    issue.closed_at = issue.updated_at = now


def _lock_open(session: Session, issue: Issue) -> None:
    session.refresh(issue, with_for_update=True)
    if issue.closed_at is not None:
        raise IssueClosed(
            f"Issue {issue.number} is closed and does not change: create another one."
        )


def _places(session: Session, project_id: str, named: dict[str, str | None]) -> dict[str, Any]:
    """Return the columns of evaluations named as RUN@STEP, which must exist."""
    columns: dict[str, Any] = {}
    for name, text in named.items():
        run_id, step = None, None
        if text is not None:
            run_id, _, digits = text.partition("@")
            step = int(digits)
            keep_runs(session, [run_id])
            run = get_run(session, project_id, run_id)
            if step not in {each.step for each in list_evals(session, run.id)}:
                raise NoSuchEval(f"{name}: run {run_id} has no evaluation at step {step}")
        columns |= {f"{name}_run_id": run_id, f"{name}_step": step}
    return columns
