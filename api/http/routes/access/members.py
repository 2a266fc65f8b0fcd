"""`/v1/members`: people and their roles in the project."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import Admin, Reader, ServicesDep
from api.http.routes.access.bodies import Email, EmailPath, SetMember
from api.tables import Person, ProjectMember
from api.tables.access import members
from api.tables.access.errors import MemberNotFound
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.projects.access import MemberList, MemberPayload

router = APIRouter(
    prefix="/v1/members",
    tags=["access"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)


@router.get("", operation_id="list_members", summary="List members")
def list_members(
    services: ServicesDep,
    caller: Reader,
    after: Annotated[
        Email | None, Query(description="Address of the last member of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> MemberList:
    """Return one page of the project's members by address."""
    with services.database.transaction() as session:
        rows = members.list_members(session, caller.project_id, after=after, limit=limit + 1)
    return MemberList(
        data=[_payload(member, person) for member, person in rows[:limit]],
        has_more=len(rows) > limit,
    )


@router.put(
    "/{email}",
    operation_id="set_member",
    summary="Invite a member or change the role",
    responses={**documented(MALFORMED)},
)
def set_member(
    services: ServicesDep, caller: Admin, email: EmailPath, body: SetMember
) -> MemberPayload:
    """Invite a person, or change a member's role; it holds from the next request on.

    The person need not have signed in before: whoever signs in with this address, which the
    provider must have verified, is asked whether to join. Until then `accepted_at`, `name` and
    `last_login_at` are null, also for a person of other projects.
    """
    with services.database.transaction() as session:
        member, person = members.set_member(
            session, caller.project_id, email, body.role, actor=caller.actor
        )
        session.refresh(member)
        return _payload(member, person)


@router.delete(
    "/{email}",
    operation_id="remove_member",
    summary="Remove a member",
    status_code=204,
    responses={**documented(KINDS[MemberNotFound])},
)
def remove_member(services: ServicesDep, caller: Admin, email: EmailPath) -> Response:
    """Remove a member; their keys and sessions in this project stop at the next request."""
    with services.database.transaction() as session:
        members.remove_member(session, caller.project_id, email)
    return Response(status_code=204)


def _payload(member: ProjectMember, person: Person) -> MemberPayload:
    return MemberPayload(
        email=person.email,
        name=person.name if member.accepted_at is not None else None,
        role=member.role,
        added_by=member.added_by,
        created_at=member.created_at,
        accepted_at=member.accepted_at,
        last_login_at=person.last_login_at if member.accepted_at is not None else None,
    )
