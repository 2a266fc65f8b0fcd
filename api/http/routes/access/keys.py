"""`/v1/keys`: the keys of a project; `/v1/whoami`: the caller."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from api.http.problems import INVALID, KINDS, MALFORMED, Problem, documented
from api.http.requests.context import Admin, Reader, ServicesDep
from api.http.routes.access.bodies import CreateKey, RotateKey, is_past
from api.runs.journal import utc_now
from api.tables import ApiKey
from api.tables.access import keys
from api.tables.access.errors import KeyFixed, KeyNotFound, MemberNotFound
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal
from api.tables.access.keys import IssuedKey, NewKey
from api.tables.access.projects import get_project
from api.tables.access.roles import role_with
from hillclimb.protocol.payloads.projects.access import (
    CallerPayload,
    IssuedKeyPayload,
    KeyList,
    KeyPayload,
)

router = APIRouter(
    prefix="/v1",
    tags=["access"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

KeyId = Annotated[str, Path(max_length=60, examples=["key_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
NO_KEY = (KINDS[KeyNotFound], KINDS[KeyFixed])


@router.get("/whoami", operation_id="whoami", summary="Who am I?")
def whoami(services: ServicesDep, caller: Reader) -> CallerPayload:
    """Return the caller's project, key or person, role and scopes."""
    with services.database.transaction() as session:
        project = get_project(session, caller.project_id)
    role = role_with(caller.scopes)
    return CallerPayload(
        project_id=project.id,
        project=project.name,
        actor=caller.actor,
        key_id=caller.key_id,
        email=caller.email,
        role=role.value if role is not None else None,
        scopes=sorted(caller.scopes),
        expires_at=caller.expires_at,
    )


@router.post(
    "/keys",
    operation_id="create_key",
    summary="Create a key",
    status_code=201,
    responses={**documented(MALFORMED, KINDS[MemberNotFound])},
)
def create_key(services: ServicesDep, caller: Admin, body: CreateKey) -> IssuedKeyPayload:
    """Return a new key of the project with its `secret`, which is stored only as a hash.

    The scopes of a key with an owner never exceed the owner's role, which is looked up at every
    request. Only the operator may grant the scope `operator`.
    """
    with services.database.transaction() as session:
        return issue(session, caller, body)


@router.get(
    "/keys", operation_id="list_keys", summary="List keys", responses={**documented(*NO_KEY)}
)
def list_keys(
    services: ServicesDep,
    caller: Admin,
    before: Annotated[
        str | None, Query(max_length=60, description="Id of the last key of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> KeyList:
    """Return one page of the project's keys, newest first, with revoked ones; without secrets."""
    with services.database.transaction() as session:
        last = keys.get_key(session, caller.project_id, before) if before else None
        rows = keys.list_keys(session, caller.project_id, before=last, limit=limit + 1)
    data = [KeyPayload.of(_facts(key, owner=owner)) for key, owner in rows[:limit]]
    return KeyList(data=data, has_more=len(rows) > limit)


@router.post(
    "/keys/{key_id}/rotate",
    operation_id="rotate_key",
    summary="Rotate a key",
    responses={**documented(MALFORMED, *NO_KEY)},
)
def rotate_key(
    services: ServicesDep, caller: Admin, key_id: KeyId, body: RotateKey
) -> IssuedKeyPayload:
    """Return the key with a new `secret`; the one before stays valid for `grace_hours`.

    A second rotation ends the secret before the first one at once.
    """
    with services.database.transaction() as session:
        return rotate(session, caller, key_id, body)


@router.delete(
    "/keys/{key_id}",
    operation_id="revoke_key",
    summary="Revoke a key",
    responses={**documented(*NO_KEY)},
)
def revoke_key(services: ServicesDep, caller: Admin, key_id: KeyId) -> KeyPayload:
    """Revoke a key for good: the next request is refused, and open streams end. Idempotent."""
    with services.database.transaction() as session:
        key = keys.revoke_key(session, caller, key_id, now=utc_now())
        return KeyPayload.of(_facts(key, owner=keys.owner_of(session, key)))


def issue(session: Session, caller: Principal, body: CreateKey) -> IssuedKeyPayload:
    """Create a key; raises Problem for one that no request could use, and as `create_key`."""
    if is_past(body.expires_at, now=utc_now()):
        raise Problem(INVALID, "expires_at is in the past: no request could use the key.")
    new = NewKey(
        name=body.name,
        scopes=frozenset(body.scopes),
        expires_at=body.expires_at,
        email=body.owner,
    )
    return describe_issued(keys.create_key(session, caller, new), owner=body.owner)


def rotate(session: Session, caller: Principal, key_id: str, body: RotateKey) -> IssuedKeyPayload:
    """Give the key a new secret; raises as `rotate_key`."""
    grace = timedelta(hours=body.grace_hours)
    issued = keys.rotate_key(session, caller, key_id, grace=grace, now=utc_now())
    return describe_issued(issued, owner=keys.owner_of(session, issued.key))


def describe_issued(issued: IssuedKey, *, owner: str | None) -> IssuedKeyPayload:
    """Return a key with its secret as a payload."""
    return IssuedKeyPayload.of(_facts(issued.key, owner=owner) | {"secret": issued.secret})


def _facts(key: ApiKey, *, owner: str | None) -> dict[str, object]:
    names = (
        "id", "name", "prefix", "scopes", "created_by", "created_at", "last_used_at", "expires_at",
        "revoked_at", "previous_until",
    )  # fmt: skip
    return {name: getattr(key, name) for name in names} | {"owner": owner}
