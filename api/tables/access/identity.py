"""Authentication: an API key identifies a Principal with a project and scopes.

Keys are 256 random bits, so a plain SHA-256 is enough at rest; no function here can print one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import ApiKey, Project
from api.tables.ids import new_id

KEY_PREFIX = "hc_"
PREFIX_CHARS = 12
"""First characters of a key, stored unhashed to find its row and to show to people."""
MIN_KEY_CHARS = 32
DEFAULT_PROJECT = "default"


class Scope(StrEnum):
    """A permission of a key; none is granted by default."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    RUNNER = "runner"
    ADMIN = "admin"


USER_SCOPES = (Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.ADMIN)
RUNNER_SCOPES = (Scope.RUNNER,)


class IdentityError(Exception):
    """Base class of the errors of this module."""


class NotAuthenticated(IdentityError):
    """No key, or an invalid one."""


class NotAllowed(IdentityError):
    """The key is valid but lacks the scope."""


class WeakKey(IdentityError):
    """A key from the environment is too short to be a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller: its project, key and scopes."""

    project_id: str
    key_id: str
    key_name: str
    scopes: frozenset[str]
    via: str | None = None
    """Who acts for the key, such as `slack:U0123`; null for its owner."""

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        return f"key:{self.key_name}" if self.via is None else f"key:{self.key_name} {self.via}"

    def require(self, scope: Scope) -> None:
        """Raise NotAllowed unless the key has the scope."""
        if scope.value not in self.scopes:
            raise NotAllowed(f"This key lacks the scope {scope.value!r}.")


def new_key() -> str:
    """Return a new key; it is shown once and stored only as a hash."""
    return KEY_PREFIX + secrets.token_hex(32)


def authenticate(session: Session, key: str) -> Principal:
    """Return the owner of the key; raises NotAuthenticated for unknown and revoked keys."""
    digest = _digest(key)
    candidates = session.scalars(
        select(ApiKey).where(ApiKey.prefix == key[:PREFIX_CHARS], ApiKey.revoked_at.is_(None))
    )
    for row in candidates:
        if hmac.compare_digest(row.sha256, digest):
            return _principal(row)
    raise NotAuthenticated("The API key is not valid.")


def principal_of_key(session: Session, key_id: str, *, via: str | None = None) -> Principal | None:
    """Return the owner of a key by its id; null for one that does not exist or was revoked."""
    row = session.get(ApiKey, key_id)
    return None if row is None or row.revoked_at is not None else _principal(row, via=via)


def _principal(row: ApiKey, *, via: str | None = None) -> Principal:
    return Principal(
        project_id=row.project_id,
        key_id=row.id,
        key_name=row.name,
        scopes=frozenset(row.scopes),
        via=via,
    )


def ensure_key(session: Session, key: str, *, name: str, scopes: Iterable[Scope]) -> None:
    """Register `key` for the default project, which is created too; idempotent.

    Raises WeakKey for a key under 32 characters.
    """
    if len(key) < MIN_KEY_CHARS:
        raise WeakKey(f"The key {name!r} needs at least {MIN_KEY_CHARS} characters.")
    project = {"id": DEFAULT_PROJECT, "name": DEFAULT_PROJECT}
    session.execute(insert(Project).values(**project).on_conflict_do_nothing())
    row = {
        "id": new_id("key"),
        "project_id": DEFAULT_PROJECT,
        "name": name,
        "prefix": key[:PREFIX_CHARS],
        "sha256": _digest(key),
        "scopes": [scope.value for scope in scopes],
    }
    session.execute(insert(ApiKey).values(**row).on_conflict_do_nothing())


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
