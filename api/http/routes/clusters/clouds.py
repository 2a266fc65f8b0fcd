"""`/v1/clouds`: what was learnt of the clouds, and clusters that nobody owns. The operator's."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters import strays as stray_clusters
from api.clusters.errors import CloudExclusionNotFound, StrayNotFound
from api.clusters.strays import GRACE
from api.identity import NotAllowed, NotAuthenticated
from api.problems import KINDS, documented
from api.routes.context import Admin, Reader, ServicesDep
from api.routes.costs import CloudExclusionPayload
from api.routes.payloads import Payload
from api.runs.journal import utc_now
from api.tables import StrayCluster

router = APIRouter(prefix="/v1/clouds", tags=["clusters"])

REFUSALS = (KINDS[NotAuthenticated], KINDS[NotAllowed])


class CloudExclusionList(Payload):
    """What is asked for last now."""

    object: Literal["list"] = "list"
    data: list[CloudExclusionPayload]


class StrayPayload(Payload):
    """A cluster with this service's tag that no run has."""

    name: str
    met_at: datetime
    """When a sweep first met it."""
    ends_at: datetime | None
    """When the reaper ends it by itself; null where it runs dry (`HILLCLIMB_REAP_DRY_RUN`)."""
    end_asked_at: datetime | None
    """Since when somebody wants it ended: the next sweep does it."""
    end_asked_by: str | None


class StrayList(Payload):
    """Clusters that nobody owns; listing them ends none."""

    object: Literal["list"] = "list"
    reaps_dry: bool
    data: list[StrayPayload]


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
        exclusions.clear(session, exclusion_id)
        session.flush()
        return _in_force(session)


@router.get(
    "/strays",
    operation_id="list_strays",
    summary="Clusters that nobody owns",
    responses={**documented(*REFUSALS)},
)
def list_strays(services: ServicesDep, caller: Admin) -> StrayList:
    """Return what the reaper met and when it ends each; this is its dry run."""
    del caller
    dry = services.settings.reaps_dry
    with services.database.transaction() as session:
        found = [_stray(each, dry=dry) for each in stray_clusters.strays(session)]
    return StrayList(reaps_dry=dry, data=found)


@router.post(
    "/strays/{name}/end",
    operation_id="end_stray",
    summary="End a cluster that nobody owns",
    responses={**documented(*REFUSALS, KINDS[StrayNotFound])},
)
def end_stray(services: ServicesDep, caller: Admin, name: str) -> StrayPayload:
    """End it at the next sweep, without the grace and in a dry run too. Repeatable."""
    with services.database.transaction() as session:
        found = stray_clusters.ask_end(session, name, actor=caller.actor, now=utc_now())
        return _stray(found, dry=services.settings.reaps_dry)


def _in_force(session: Session) -> CloudExclusionList:
    found = exclusions.in_force(session, now=utc_now())
    return CloudExclusionList(data=[CloudExclusionPayload.model_validate(each) for each in found])


def _stray(found: StrayCluster, *, dry: bool) -> StrayPayload:
    return StrayPayload(
        name=found.name,
        met_at=found.met_at,
        ends_at=None if dry else found.met_at + GRACE,
        end_asked_at=found.end_asked_at,
        end_asked_by=found.end_asked_by,
    )
