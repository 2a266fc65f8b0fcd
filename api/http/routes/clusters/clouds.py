"""`/v1/clouds`: what was learnt of the clouds, and clusters that nobody owns. The operator's."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters import orphans as orphaned_clusters
from api.clusters.errors import CloudExclusionNotFound, OrphanNotFound
from api.http.problems import KINDS, documented
from api.http.requests.context import Admin, Reader, ServicesDep
from api.runs.deadlines import ORPHAN_GRACE
from api.runs.journal import utc_now
from api.tables import OrphanedCluster
from api.tables.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.costs import CloudExclusionPayload

router = APIRouter(prefix="/v1/clouds", tags=["clusters"])

REFUSALS = (KINDS[NotAuthenticated], KINDS[NotAllowed])


class CloudExclusionList(Payload):
    """The exclusions in force."""

    object: Literal["list"] = "list"
    data: list[CloudExclusionPayload]


class OrphanPayload(Payload):
    """A cluster with this service's tag that no run has."""

    name: str
    first_seen_at: datetime
    """When a sweep first met it."""
    ends_at: datetime | None
    """When the reaper ends it by itself; null where it runs dry (`HILLCLIMB_REAP_DRY_RUN`)."""
    terminate_requested_at: datetime | None
    """Since when somebody wants it ended: the next sweep does it."""
    terminate_requested_by: str | None


class OrphanList(Payload):
    """Clusters that nobody owns; listing them ends none."""

    object: Literal["list"] = "list"
    reaps_dry: bool
    data: list[OrphanPayload]


@router.get(
    "/exclusions",
    operation_id="list_cloud_exclusions",
    summary="What was learnt of the clouds",
    responses={**documented(*REFUSALS)},
)
def list_cloud_exclusions(services: ServicesDep, caller: Reader) -> CloudExclusionList:
    """Return machines that failed of late: they are asked for after all others, until then."""
    del caller
    with services.database.transaction() as session:
        return _in_force(session)


@router.delete(
    "/exclusions/{exclusion_id}",
    operation_id="clear_cloud_exclusion",
    summary="Forget what was learnt of a cloud",
    responses={**documented(*REFUSALS, KINDS[CloudExclusionNotFound])},
)
def clear_cloud_exclusion(
    services: ServicesDep, caller: Admin, exclusion_id: str
) -> CloudExclusionList:
    """Ask for these machines in their own order again (quota was raised, say); returns the rest."""
    del caller
    with services.database.transaction() as session:
        exclusions.remove(session, exclusion_id)
        session.flush()
        return _in_force(session)


@router.get(
    "/orphans",
    operation_id="list_orphans",
    summary="Clusters that nobody owns",
    responses={**documented(*REFUSALS)},
)
def list_orphans(services: ServicesDep, caller: Admin) -> OrphanList:
    """Return what the reaper met and when it ends each; this is its dry run."""
    del caller
    dry = services.settings.reaps_dry
    with services.database.transaction() as session:
        orphans = [_orphan(each, dry=dry) for each in orphaned_clusters.orphaned_clusters(session)]
    return OrphanList(reaps_dry=dry, data=orphans)


@router.post(
    "/orphans/{name}/terminate",
    operation_id="terminate_orphan",
    summary="End a cluster that nobody owns",
    responses={**documented(*REFUSALS, KINDS[OrphanNotFound])},
)
def terminate_orphan(services: ServicesDep, caller: Admin, name: str) -> OrphanPayload:
    """End it at the next sweep, without the grace and in a dry run too. Repeatable."""
    with services.database.transaction() as session:
        orphan = orphaned_clusters.request_termination(
            session, name, actor=caller.actor, now=utc_now()
        )
        return _orphan(orphan, dry=services.settings.reaps_dry)


def _in_force(session: Session) -> CloudExclusionList:
    rows = exclusions.in_force(session, now=utc_now())
    return CloudExclusionList(data=[CloudExclusionPayload.model_validate(each) for each in rows])


def _orphan(orphan: OrphanedCluster, *, dry: bool) -> OrphanPayload:
    return OrphanPayload(
        name=orphan.name,
        first_seen_at=orphan.first_seen_at,
        ends_at=None if dry else orphan.first_seen_at + ORPHAN_GRACE,
        terminate_requested_at=orphan.terminate_requested_at,
        terminate_requested_by=orphan.terminate_requested_by,
    )
