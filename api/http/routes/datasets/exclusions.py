"""`/v1/datasets/{name}/exclusions`: excluded tasks and environments, with reasons."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.datasets import exclusions, store
from api.datasets.errors import DatasetNotFound, DatasetRejected, ExclusionNotFound
from api.datasets.exclusions import exclusion_facts
from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, ServicesDep, Writer
from api.http.requests.reads import as_list
from api.http.routes.datasets.datasets import Name
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.datasets.filter.exclusions import MAX_AT_ONCE, Exclusion
from hillclimb.protocol.payloads.datasets.exclusions import ExclusionList, RemovedExclusion

router = APIRouter(
    prefix="/v1/datasets/{name}/exclusions",
    tags=["datasets"],
    responses={
        **documented(KINDS[NotAuthenticated], KINDS[NotAllowed], KINDS[DatasetNotFound], INVALID)
    },
)


class Additions(BaseModel):
    """Tasks and environments to exclude from now on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exclusions: Annotated[tuple[Exclusion, ...], Field(min_length=1, max_length=MAX_AT_ONCE)]


@router.get("", operation_id="list_exclusions", summary="List exclusions")
def list_exclusions(
    services: ServicesDep,
    caller: Reader,
    name: Name,
    all_: Annotated[bool, Query(alias="all", description="Also expired ones.")] = False,  # noqa: FBT002
) -> ExclusionList:
    """Return the exclusions in force, by scope and key."""
    now = utc_now()
    with services.database.transaction() as session:
        dataset = store.find_dataset(session, caller.project_id, name)
        rows = store.list_exclusions(session, dataset, now=None if all_ else now)
        return ExclusionList.of(as_list([exclusion_facts(each, now=now) for each in rows]))


@router.post(
    "",
    operation_id="add_exclusions",
    summary="Exclude tasks or environments",
    responses={**documented(KINDS[DatasetRejected], INVALID)},
)
def add_exclusions(
    services: ServicesDep, caller: Writer, name: Name, body: Additions
) -> ExclusionList:
    """Add exclusions; an existing one gets the new reason and end. Idempotent.

    A task, and an environment without `expires_at`, are left out of versions created from now on.
    An environment with `expires_at` is in quarantine: until then no run gets its tasks.
    """
    now = utc_now()
    exclusions.check_ends(body.exclusions, now=now)
    with services.database.transaction() as session:
        dataset = exclusions.find_dataset(session, caller.project_id, name, body.exclusions)
        added = exclusions.add(session, dataset, body.exclusions, actor=caller.actor)
        return ExclusionList.of(as_list([exclusion_facts(each, now=now) for each in added]))


@router.delete(
    "/{exclusion_id}",
    operation_id="remove_exclusion",
    summary="Delete an exclusion",
    responses={**documented(KINDS[ExclusionNotFound])},
)
def remove_exclusion(
    services: ServicesDep, caller: Writer, name: Name, exclusion_id: str
) -> RemovedExclusion:
    """Delete an exclusion; it no longer counts from the next version or run on."""
    with services.database.transaction() as session:
        dataset = store.find_dataset(session, caller.project_id, name)
        exclusions.remove(session, dataset, exclusion_id)
    return RemovedExclusion(id=exclusion_id, removed=True)
