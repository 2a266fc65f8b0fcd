"""Projects, people, API keys with grants, quotas, secrets, defaults, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import String

from api.tables.base import Base, Created


class Project(Created, Base):
    """A tenant: every other row belongs to exactly one."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    deleting_at: Mapped[datetime | None]
    """When its deletion was requested. The row stays, for the records of the audit."""
    deleted_at: Mapped[datetime | None]
    """When nothing of it was left but those records."""


class ApiKey(Created, Base):
    """An API key, of which only the first characters and the SHA-256 are stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(index=True)
    sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String()))
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[str] = mapped_column(server_default=text("'service'"))
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """Written at most once a minute."""
    person_id: Mapped[str | None] = mapped_column(ForeignKey("people.id"), index=True)
    """The person whose role bounds the key; null for a key of a service."""
    is_from_environment: Mapped[bool] = mapped_column(server_default=false())
    """True for a key that the API registers at start from a variable."""
    previous_prefix: Mapped[str | None] = mapped_column(index=True)
    previous_sha256: Mapped[str | None]
    """The secret before the rotation, which is valid until `previous_until`."""
    previous_until: Mapped[datetime | None]


class Person(Created, Base):
    """A person: a member of projects, who signs in through the provider of identities."""

    __tablename__ = "people"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    """In lower case."""
    name: Mapped[str | None]
    issuer: Mapped[str | None]
    subject: Mapped[str | None]
    """The provider's name for the person; null before the first sign-in."""
    last_login_at: Mapped[datetime | None]
    sessions_since: Mapped[datetime | None]
    """Sessions that were opened before this have ended."""


class ProjectMember(Created, Base):
    """A person's role in a project."""

    __tablename__ = "members"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    person_id: Mapped[str] = mapped_column(ForeignKey("people.id"), primary_key=True, index=True)
    role: Mapped[str]
    added_by: Mapped[str]
    accepted_at: Mapped[datetime | None]
    """When the person accepted; before, the project sees no more of them than it entered itself."""


class ProjectQuota(Base):
    """Quotas that the operator set for a project; a null is the service's default."""

    __tablename__ = "project_quotas"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    queued_runs: Mapped[int | None]
    running_runs: Mapped[int | None]
    submissions_per_hour: Mapped[int | None]
    dataset_bytes: Mapped[int | None] = mapped_column(BigInteger)
    set_by: Mapped[str]


class AuditRecord(Created, Base):
    """One change of a project by a request: who, what, and which values, without secrets."""

    __tablename__ = "audit_records"
    __table_args__ = (Index("ix_audit_records_page", "project_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    actor: Mapped[str]
    key_id: Mapped[str | None]
    person_id: Mapped[str | None]
    route: Mapped[str]
    """Method and path of the route, such as `POST /v1/runs/{run_id}/cancel`."""
    target: Mapped[str | None]
    """Id of what was changed."""
    request_id: Mapped[str]
    changes: Mapped[list[dict[str, Any]]]
    """`table`, `id`, `action`, and `before` and `after` of the columns that may be shown."""


class RunGrant(Created, Base):
    """Runs and extensions that the owner of a key may spend; a key without a row is not limited."""

    __tablename__ = "run_grants"
    __table_args__ = (
        CheckConstraint("num_runs_used >= 0", name="num_runs_used"),
        CheckConstraint("extra_usd_used >= 0", name="extra_usd_used"),
        CheckConstraint("extra_hours_used >= 0", name="extra_hours_used"),
    )

    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    num_runs: Mapped[int]
    """Runs that the key may create: submitted, forked, swept, or as cells of campaigns."""
    num_runs_used: Mapped[int] = mapped_column(default=0)
    extra_usd: Mapped[float] = mapped_column(default=0.0)
    """Dollars by which the key may extend budgets of runs, all extensions together."""
    extra_usd_used: Mapped[float] = mapped_column(default=0.0)
    extra_hours: Mapped[float] = mapped_column(default=0.0)
    """Hours by which the key may extend budgets of runs, all extensions together."""
    extra_hours_used: Mapped[float] = mapped_column(default=0.0)
    created_by: Mapped[str]


class SessionCode(Created, Base):
    """A one-time code by which a key's owner signs in with a browser; short-lived."""

    __tablename__ = "session_codes"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class EndedSession(Created, Base):
    """A browser session that was signed out; kept until its cookie expires by itself."""

    __tablename__ = "ended_sessions"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    """Of the cookie."""
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class ProjectSecret(Created, Base):
    """A secret of a project: its value is stored encrypted, and no response has it."""

    __tablename__ = "project_secrets"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str]
    """The master key that decrypts it."""
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    version: Mapped[int]
    """Number of the value: 1 is the first."""
    hosts: Mapped[list[str]] = mapped_column(ARRAY(String()), server_default=text("'{}'"))
    """Hosts to which specs may send it; none: only the platform that the variable is named for."""
    created_by: Mapped[str]
    updated_by: Mapped[str]
    updated_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    """When an attempt last received it."""


class ProjectDefaultsRecord(Base):
    """`hillclimb.spec.rules.project_defaults.ProjectDefaults` of a project."""

    __tablename__ = "project_defaults"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    defaults: Mapped[dict[str, Any]]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
