"""`/v1/clouds`: cloud exclusions and orphaned clusters, for operators."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters import orphans as orphaned_clusters
from api.clusters.errors import CloudExclusionNotFound, OrphanNotFound
from api.http.payloads.clusters import describe_orphan
from api.http.problems import KINDS, documented
from api.http.requests.context import Admin, Reader, ServicesDep
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.clusters import OrphanList, OrphanPayload
from hillclimb.protocol.payloads.costs import CloudExclusionList, CloudExclusionPayload

router = APIRouter(prefix="/v1/clouds", tags=["clusters"])

REFUSALS = (KINDS[NotAuthenticated], KINDS[NotAllowed])


@router.get(
    "/exclusions",
    operation_id="list_cloud_exclusions",
    summary="List cloud exclusions",
    responses={**documented(*REFUSALS)},
)
def list_cloud_exclusions(services: ServicesDep, caller: Reader) -> CloudExclusionList:
    """Return the machines that failed recently: until a time they are tried last."""
    del caller
    with services.database.transaction() as session:
        return _in_force(session)


@router.delete(
    "/exclusions/{exclusion_id}",
    operation_id="clear_cloud_exclusion",
    summary="Delete a cloud exclusion",
    responses={**documented(*REFUSALS, KINDS[CloudExclusionNotFound])},
)
def clear_cloud_exclusion(
    services: ServicesDep, caller: Admin, exclusion_id: str
) -> CloudExclusionList:
    """Restore the normal order of these machines (after a raised quota); return the others."""
    del caller
    with services.database.transaction() as session:
        exclusions.remove(session, exclusion_id)
        session.flush()
        return _in_force(session)


@router.get(
    "/orphans",
    operation_id="list_orphans",
    summary="List orphaned clusters",
    responses={**documented(*REFUSALS)},
)
def list_orphans(services: ServicesDep, caller: Admin) -> OrphanList:
    """Return the orphaned clusters, and when the reaper terminates each."""
    del caller
    dry = services.settings.reaps_dry
    with services.database.transaction() as session:
        orphans = [
            describe_orphan(each, dry=dry) for each in orphaned_clusters.orphaned_clusters(session)
        ]
    return OrphanList(reaps_dry=dry, data=orphans)


@router.post(
    "/orphans/{name}/terminate",
    operation_id="terminate_orphan",
    summary="Terminate an orphaned cluster",
    responses={**documented(*REFUSALS, KINDS[OrphanNotFound])},
)
def terminate_orphan(services: ServicesDep, caller: Admin, name: str) -> OrphanPayload:
    """Terminate it at the next cluster sweep: without grace, also in a dry run. Idempotent."""
    with services.database.transaction() as session:
        orphan = orphaned_clusters.request_termination(
            session, name, actor=caller.actor, now=utc_now()
        )
        return describe_orphan(orphan, dry=services.settings.reaps_dry)


def _in_force(session: Session) -> CloudExclusionList:
    rows = exclusions.in_force(session, now=utc_now())
    return CloudExclusionList(data=[CloudExclusionPayload.model_validate(each) for each in rows])
