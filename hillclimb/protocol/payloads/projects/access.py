"""Payloads of access: keys, members, projects, quotas and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class CallerPayload(Payload):
    """The caller as the service knows it."""

    object: Literal["caller"] = "caller"
    project_id: str
    project: str
    """Name of the project."""
    actor: str
    """The caller's name in events and in the audit log."""
    key_id: str | None
    """Null for a person in a browser."""
    email: str | None
    """The person, or the owner of the key; null for a key of a service."""
    role: str | None
    """The highest role whose scopes the caller has; null for a runner's key."""
    scopes: list[str]
    expires_at: datetime | None


class KeyPayload(Payload):
    """A key, without its secret."""

    object: Literal["key"] = "key"
    id: str
    name: str
    prefix: str
    """The first characters of the secret."""
    scopes: list[str]
    owner: str | None
    """Address of the member whose role bounds the key; null for a key of a service."""
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    """To the minute; null for a key that was never used."""
    expires_at: datetime | None
    revoked_at: datetime | None
    previous_until: datetime | None
    """Until when the secret before the last rotation is valid."""


class IssuedKeyPayload(KeyPayload):
    """A key with its secret, which no other response has."""

    secret: str


class KeyList(Payload):
    """One page of keys, newest first."""

    object: Literal["list"] = "list"
    data: list[KeyPayload]
    has_more: bool


class MemberPayload(Payload):
    """A person's role in the project."""

    object: Literal["member"] = "member"
    email: str
    name: str | None
    """As the provider of identities has it; null until the person has accepted."""
    role: str
    added_by: str
    created_at: datetime
    accepted_at: datetime | None
    """When the person joined; null for an invitation."""
    last_login_at: datetime | None
    """The last sign-in; null until the person has accepted."""


class MemberList(Payload):
    """One page of members by address."""

    object: Literal["list"] = "list"
    data: list[MemberPayload]
    has_more: bool


class ProjectPayload(Payload):
    """A project."""

    object: Literal["project"] = "project"
    id: str
    name: str
    created_at: datetime


class NewProjectPayload(ProjectPayload):
    """A new project with the key of its admin, which no other response has."""

    key: IssuedKeyPayload


class DeletedProjectPayload(Payload):
    """A project whose deletion was requested."""

    object: Literal["deleted_project"] = "deleted_project"
    id: str
    name: str
    deleting_at: datetime
    """When it was requested: none of its keys and members is admitted any more."""


class ProjectList(Payload):
    """One page of projects by id."""

    object: Literal["list"] = "list"
    data: list[ProjectPayload]
    has_more: bool


class QuotaPayload(Payload):
    """A quota and its use."""

    name: str
    """`queued_runs`, `running_runs`, `submissions_per_hour` or `dataset_bytes`."""
    limit: int
    used: int
    is_default: bool
    """True where the operator set no quota for the project."""


class QuotasPayload(Payload):
    """The quotas of a project."""

    object: Literal["quotas"] = "quotas"
    project_id: str
    data: list[QuotaPayload]


class AuditPayload(Payload):
    """One change of the project by a request."""

    object: Literal["audit_record"] = "audit_record"
    id: str
    created_at: datetime
    actor: str
    key_id: str | None
    person_id: str | None
    route: str
    """Method and path, such as `POST /v1/runs/{run_id}/cancel`; or the sweep of the worker that
    completed a deletion."""
    target: str | None
    """Id of what was changed."""
    request_id: str
    changes: list[dict[str, Any]]
    """`table`, `id`, `action`, and the values before and after, without secrets; 20 at most."""


class AuditList(Payload):
    """One page of the audit log, newest first."""

    object: Literal["list"] = "list"
    data: list[AuditPayload]
    has_more: bool
