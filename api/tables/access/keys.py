"""Keys of a project: created, rotated and revoked by its admins; secrets are returned once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.tables import ApiKey, Person
from api.tables.access.errors import KeyFixed, KeyNotFound, NotAllowed
from api.tables.access.identity import PREFIX_CHARS, Principal, digest_of, new_key
from api.tables.access.members import find_member
from api.tables.access.roles import Scope
from api.tables.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key to create."""

    name: str
    scopes: frozenset[Scope]
    expires_at: datetime | None = None
    email: str | None = None
    """The member whose role bounds the key; null for a key of a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A key with its secret, which no later answer has."""

    key: ApiKey
    secret: str


def create_key(session: Session, caller: Principal, new: NewKey) -> IssuedKey:
    """Create a key of the caller's project.

    Raises NotAllowed when it would have the operator's scope and the caller has not, and
    MemberNotFound when its owner is no member.
    """
    if Scope.OPERATOR in new.scopes:
        caller.require(Scope.OPERATOR)
    owner = None
    if new.email is not None:
        owner = find_member(session, caller.project_id, new.email).person_id
    return issue_key(session, caller.project_id, new, person_id=owner, actor=caller.actor)


def issue_key(
    session: Session, project_id: str, new: NewKey, *, person_id: str | None, actor: str
) -> IssuedKey:
    """Store a new key of a project and return it with its secret."""
    secret = new_key()
    key = ApiKey(
        id=new_id("key"),
        project_id=project_id,
        name=new.name,
        prefix=secret[:PREFIX_CHARS],
        sha256=digest_of(secret),
        scopes=sorted(scope.value for scope in new.scopes),
        expires_at=new.expires_at,
        person_id=person_id,
        created_by=actor,
        is_from_environment=False,
    )
    session.add(key)
    session.flush()
    return IssuedKey(key=key, secret=secret)


def list_keys(
    session: Session, project_id: str, *, before: ApiKey | None, limit: int
) -> list[tuple[ApiKey, str | None]]:
    """Return keys with their owners' addresses, newest first, older than `before`."""
    query = (
        select(ApiKey, Person.email)
        .outerjoin(Person, Person.id == ApiKey.person_id)
        .where(ApiKey.project_id == project_id)
    )
    if before is not None:
        query = query.where(ApiKey.id < before.id)
    return [
        (key, email)
        for key, email in session.execute(query.order_by(ApiKey.id.desc()).limit(limit))
    ]


def get_key(session: Session, project_id: str, key_id: str, *, lock: bool = False) -> ApiKey:
    """Return a key of the project; raises KeyNotFound."""
    query = select(ApiKey).where(ApiKey.id == key_id, ApiKey.project_id == project_id)
    key = session.scalar(query.with_for_update() if lock else query)
    if key is None:
        raise KeyNotFound(f"The project has no key {key_id!r}: `hillclimb keys list` names them.")
    return key


def rotate_key(
    session: Session, caller: Principal, key_id: str, *, grace: timedelta, now: datetime
) -> IssuedKey:
    """Give a key a new secret; the one before stays valid for `grace`, older ones end at once.

    Raises KeyNotFound, NotAllowed, and KeyFixed for keys that were revoked or come from the
    environment.
    """
    key = _changeable(session, caller, key_id)
    if key.revoked_at is not None:
        raise KeyFixed(f"The key {key.name!r} was revoked: create a new one.")
    secret = new_key()
    key.previous_prefix, key.previous_sha256 = key.prefix, key.sha256
    key.previous_until = now + grace
    key.prefix, key.sha256 = secret[:PREFIX_CHARS], digest_of(secret)
    return IssuedKey(key=key, secret=secret)


def revoke_key(session: Session, caller: Principal, key_id: str, *, now: datetime) -> ApiKey:
    """Revoke a key at once, and its secret before a rotation too; idempotent.

    Raises KeyNotFound, NotAllowed, and KeyFixed for keys from the environment.
    """
    key = _changeable(session, caller, key_id)
    if key.revoked_at is None:
        key.revoked_at = now
    return key


def _changeable(session: Session, caller: Principal, key_id: str) -> ApiKey:
    key = get_key(session, caller.project_id, key_id, lock=True)
    if key.is_from_environment:
        raise KeyFixed(
            f"The key {key.name!r} comes from a variable of the service: change the variable and"
            " restart the service."
        )
    if Scope.OPERATOR.value in key.scopes and Scope.OPERATOR.value not in caller.scopes:
        raise NotAllowed("Only the operator may change a key with the scope 'operator'.")
    return key


def owner_of(session: Session, key: ApiKey) -> str | None:
    """Return the address of a key's owner; null for a key of a service."""
    return None if key.person_id is None else session.get_one(Person, key.person_id).email
