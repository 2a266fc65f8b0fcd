"""Authentication: an API key identifies a Principal with a project and scopes.

Keys are 256 random bits, so a plain SHA-256 is enough at rest; no function here can print one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import ApiKey, Person, Project, ProjectMember, RunGrant
from api.tables.access.errors import IdentityError, NotAllowed, NotAuthenticated, WeakKey
from api.tables.access.roles import (
    RUNNER_SCOPES,
    SCOPES_OF_ROLE,
    USER_SCOPES,
    Role,
    Scope,
)
from api.tables.ids import new_id

__all__ = [
    "RUNNER_SCOPES",
    "USER_SCOPES",
    "IdentityError",
    "NotAllowed",
    "NotAuthenticated",
    "Principal",
    "Scope",
    "WeakKey",
    "authenticate",
    "ensure_key",
]

KEY_PREFIX = "hc_"
PREFIX_CHARS = 12
"""First characters of a key, stored unhashed to find its row and to show to people."""
MIN_KEY_CHARS = 32
DEFAULT_PROJECT = "default"
NO_MEMBER = "The person is no member of this project any more."
USE_INTERVAL = timedelta(seconds=60)
"""How exact the time of a key's last use is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """The session of a browser by which somebody came."""

    sha256: str
    """Of its cookie."""
    expires_at: datetime
    since: datetime | None = None
    """When the session of a person began; null for one that a key opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller: its project, its key or person, and scopes."""

    project_id: str
    key_id: str | None
    """Null for a person in a browser."""
    key_name: str
    scopes: frozenset[str]
    person_id: str | None = None
    """The person in a browser, or the owner of the key."""
    email: str | None = None
    expires_at: datetime | None = None
    via: str | None = None
    """Who acts for the key, such as `slack:U0123`; null for its owner."""
    session: BrowserSession | None = None
    """Null for requests with a key."""
    may_have_grant: bool = True
    """False for a key that had none when it was looked up."""

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        if self.key_id is None:
            return f"person:{self.email}"
        return f"key:{self.key_name}" if self.via is None else f"key:{self.key_name} {self.via}"

    @property
    def limited_as(self) -> str:
        """Whose limits count: the key's, or those of the person in a project."""
        return self.key_id or f"{self.project_id}/{self.person_id}"

    def require(self, scope: Scope) -> None:
        """Raise NotAllowed unless the caller has the scope."""
        if scope.value not in self.scopes:
            holder = "This key" if self.key_id is not None else "Your role in this project"
            raise NotAllowed(f"{holder} lacks the scope {scope.value!r}.")


def new_key() -> str:
    """Return a new key; it is shown once and stored only as a hash."""
    return KEY_PREFIX + secrets.token_hex(32)


_MEMBERSHIP = and_(
    ProjectMember.project_id == ApiKey.project_id, ProjectMember.person_id == ApiKey.person_id
)
_OF_KEYS = (
    *("id", "project_id", "person_id", "name", "scopes", "sha256", "previous_sha256"),
    *("previous_until", "revoked_at", "expires_at", "last_used_at"),
)
_CANDIDATES: Select[Any] = (
    select(
        *(ApiKey.__table__.c[name] for name in _OF_KEYS),
        ProjectMember.role,
        Person.email,
        exists().where(RunGrant.key_id == ApiKey.id).label("has_grant"),
    )
    .select_from(ApiKey)
    .outerjoin(ProjectMember, _MEMBERSHIP)
    .outerjoin(Person, Person.id == ApiKey.person_id)
    .where(or_(ApiKey.prefix == bindparam("prefix"), ApiKey.previous_prefix == bindparam("prefix")))
)
"""Keys with these first characters, each with the role of its owner. Made once, and of columns: an
object of the ORM for each request takes 1.7 times the CPU time."""
StoredKey: TypeAlias = ApiKey | Row[Any]


def authenticate(session: Session, key: str, *, now: datetime) -> Principal:
    """Return the owner of the key, and note its use.

    Raises NotAuthenticated for keys that are unknown, revoked or expired.
    """
    prefix, digest = key[:PREFIX_CHARS], digest_of(key)
    for row in session.connection().execute(_CANDIDATES, {"prefix": prefix}):
        if _matches(row, digest, now=now):
            _check_valid(row, now=now)
            if row.person_id is not None and row.role is None:
                raise NotAuthenticated(NO_MEMBER)
            _note_use(session, row, now=now)
            caller = _principal(row, row.role, row.email)
            return caller if row.has_grant else replace(caller, may_have_grant=False)
    raise NotAuthenticated("The API key is not valid.")


def principal_of(session: Session, key: ApiKey, *, now: datetime) -> Principal:
    """Return the principal of a key; raises NotAuthenticated when the key is no longer valid.

    The role of a person bounds their keys: a lower role takes effect at the next request.
    """
    _check_valid(key, now=now)
    role, email = None, None
    if key.person_id is not None:
        role, email = _membership(session, key.project_id, key.person_id)
    return _principal(key, role, email)


def _check_valid(key: StoredKey, *, now: datetime) -> None:
    if key.revoked_at is not None:
        raise NotAuthenticated("The API key was revoked.")
    if key.expires_at is not None and key.expires_at <= now:
        raise NotAuthenticated("The API key has expired.")


def _principal(key: StoredKey, role: str | None, email: str | None) -> Principal:
    """Return the principal of a valid key, whose owner has this role if a person does."""
    scopes = frozenset(key.scopes)
    if role is not None:
        scopes &= SCOPES_OF_ROLE[Role(role)]
    return Principal(
        project_id=key.project_id,
        key_id=key.id,
        key_name=key.name,
        scopes=scopes,
        person_id=key.person_id,
        email=email,
        expires_at=key.expires_at,
    )


def principal_of_key(
    session: Session, key_id: str, *, now: datetime, via: str | None = None
) -> Principal | None:
    """Return the owner of a key by its id; null for one that is not valid any more."""
    row = session.get(ApiKey, key_id)
    if row is None:
        return None
    try:
        return replace(principal_of(session, row, now=now), via=via)
    except NotAuthenticated:
        return None


def principal_of_person(session: Session, project_id: str, person_id: str) -> Principal:
    """Return the principal of a member in a browser; raises NotAuthenticated for others.

    Whoever has not accepted the invitation yet is none.
    """
    role, email = _membership(
        session, project_id, person_id, ProjectMember.accepted_at.is_not(None)
    )
    return Principal(
        project_id=project_id,
        key_id=None,
        key_name=email,
        scopes=SCOPES_OF_ROLE[role],
        person_id=person_id,
        email=email,
    )


def ensure_key(session: Session, key: str, *, name: str, scopes: Iterable[Scope]) -> None:
    """Register `key` of the environment for the default project, which is created too; idempotent.

    Another key that the same variable had before is revoked. Raises WeakKey for a key under 32
    characters.
    """
    if len(key) < MIN_KEY_CHARS:
        raise WeakKey(f"The key {name!r} needs at least {MIN_KEY_CHARS} characters.")
    project = {"id": DEFAULT_PROJECT, "name": DEFAULT_PROJECT}
    session.execute(insert(Project).values(**project).on_conflict_do_nothing())
    granted = [scope.value for scope in scopes]
    row = {
        "id": new_id("key"),
        "project_id": DEFAULT_PROJECT,
        "name": name,
        "prefix": key[:PREFIX_CHARS],
        "sha256": digest_of(key),
        "scopes": granted,
        "is_from_environment": True,
    }
    statement = insert(ApiKey).values(**row)
    session.execute(
        statement.on_conflict_do_update(index_elements=["sha256"], set_={"scopes": granted})
    )
    replaced = (
        ApiKey.is_from_environment,
        ApiKey.name == name,
        ApiKey.sha256 != row["sha256"],
        ApiKey.revoked_at.is_(None),
    )
    session.execute(update(ApiKey).where(*replaced).values(revoked_at=func.now()))


def digest_of(key: str) -> str:
    """Return the SHA-256 under which a key is stored."""
    return hashlib.sha256(key.encode()).hexdigest()


def is_key_of(row: ApiKey, digest: str) -> bool:
    """Tell whether the digest is that of the key, or of the one before its rotation."""
    return any(
        hmac.compare_digest(each or "", digest) for each in (row.sha256, row.previous_sha256)
    )


def prefixes_of_keys(session: Session) -> frozenset[str]:
    """Return the first characters of all keys that are not revoked."""
    query = select(ApiKey.prefix, ApiKey.previous_prefix).where(ApiKey.revoked_at.is_(None))
    return frozenset(each for row in session.execute(query) for each in row if each is not None)


def _matches(row: StoredKey, digest: str, *, now: datetime) -> bool:
    if hmac.compare_digest(row.sha256, digest):
        return True
    is_in_grace = row.previous_until is not None and row.previous_until > now
    return is_in_grace and hmac.compare_digest(row.previous_sha256 or "", digest)


def _note_use(session: Session, row: StoredKey, *, now: datetime) -> None:
    if row.last_used_at is None or now - row.last_used_at >= USE_INTERVAL:
        session.execute(update(ApiKey).where(ApiKey.id == row.id).values(last_used_at=now))


def _membership(
    session: Session, project_id: str, person_id: str, *more: ColumnElement[bool]
) -> tuple[Role, str]:
    query = (
        select(ProjectMember.role, Person.email)
        .join(Person, Person.id == ProjectMember.person_id)
        .where(ProjectMember.project_id == project_id, ProjectMember.person_id == person_id, *more)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotAuthenticated(NO_MEMBER)
    return Role(row.role), row.email
