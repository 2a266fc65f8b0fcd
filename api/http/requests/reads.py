"""Loads the run of a read request in the caller's project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Path
from pydantic import Field
from sqlalchemy.orm import Session

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, Services
from api.runs import store
from api.runs.errors import RunNotFound
from api.tables import Run
from api.tables.access.identity import NotAllowed, NotAuthenticated

RunId = Annotated[str, Path(examples=["run_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
Threshold = Annotated[float, Field(gt=0.0, le=1.0)]
"""Lowest score with which a rollout passes."""
Verifier = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,100}$")]
"""Version of a verifier that has rescored a run."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    **documented(KINDS[NotAuthenticated], KINDS[NotAllowed], KINDS[RunNotFound], INVALID)
}
"""Problems that every one of these routes may respond with."""


@contextmanager
def open_run(services: Services, caller: Reader, run_id: str) -> Iterator[tuple[Session, Run]]:
    """Yield a session and the run; raises RunNotFound also for runs of other projects."""
    with services.database.transaction() as session:
        yield session, store.get_run(session, caller.project_id, run_id)


def as_list(data: list[Any], *, has_more: bool = False, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the body of a list."""
    return {"object": "list", "data": data, "has_more": has_more, **more}
