"""The client's methods for access: keys, members, projects, quotas and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.projects.access import (
    AuditList,
    CallerPayload,
    DeletedProjectPayload,
    IssuedKeyPayload,
    KeyList,
    KeyPayload,
    MemberList,
    MemberPayload,
    NewProjectPayload,
    ProjectList,
    QuotasPayload,
)

KEYS, MEMBERS, PROJECTS = "/v1/keys", "/v1/members", "/v1/projects"


class ProjectAccess:
    """Access to the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def whoami(self) -> CallerPayload:
        """Return the caller's project, key or person, role and scopes."""
        return self._http.get(CallerPayload, "/v1/whoami")

    def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_at: datetime | None = None,
        owner: str | None = None,
    ) -> IssuedKeyPayload:
        """Create a key; no later response has its `secret`.

        The role of the member `owner` bounds the key.
        """
        moment = expires_at.isoformat() if expires_at is not None else None
        body = {"name": name, "scopes": list(scopes), "expires_at": moment, "owner": owner}
        return self._http.request(IssuedKeyPayload, "POST", KEYS, json=body)

    def keys(self, *, before: str | None = None, limit: int | None = None) -> KeyList:
        """Return one page of keys, newest first, older than the key `before`."""
        return self._http.get(KeyList, KEYS, {"before": before, "limit": limit})

    def rotate_key(self, key_id: str, *, grace_hours: float = 24.0) -> IssuedKeyPayload:
        """Give a key a new secret; the one before stays valid for `grace_hours`."""
        path, body = f"{KEYS}/{quoted(key_id)}/rotate", {"grace_hours": grace_hours}
        return self._http.request(IssuedKeyPayload, "POST", path, json=body)

    def revoke_key(self, key_id: str) -> KeyPayload:
        """Revoke a key for good; repeating it changes nothing."""
        return self._http.request(KeyPayload, "DELETE", f"{KEYS}/{quoted(key_id)}")

    def members(self, *, after: str | None = None, limit: int | None = None) -> MemberList:
        """Return one page of members by address, behind the address `after`."""
        return self._http.get(MemberList, MEMBERS, {"after": after, "limit": limit})

    def set_member(self, email: str, role: str) -> MemberPayload:
        """Add a member, or change the role: `viewer`, `member` or `admin`."""
        path = f"{MEMBERS}/{quoted(email)}"
        return self._http.request(MemberPayload, "PUT", path, json={"role": role})

    def remove_member(self, email: str) -> None:
        """Remove a member; their keys and sessions in the project end."""
        self._http.delete(f"{MEMBERS}/{quoted(email)}")

    def projects(self, *, after: str | None = None, limit: int | None = None) -> ProjectList:
        """Return one page of projects by id, behind the id `after`."""
        return self._http.get(ProjectList, PROJECTS, {"after": after, "limit": limit})

    def create_project(self, name: str) -> NewProjectPayload:
        """Create a project, as the operator; the response has the key of its admin."""
        return self._http.request(NewProjectPayload, "POST", PROJECTS, json={"name": name})

    def delete_project(self, project_id: str) -> DeletedProjectPayload:
        """Delete a project with all that it has, as the operator; its audit log stays."""
        path = f"{PROJECTS}/{quoted(project_id)}"
        return self._http.request(DeletedProjectPayload, "DELETE", path)

    def quotas(self) -> QuotasPayload:
        """Return the quotas of the project and their use."""
        return self._http.get(QuotasPayload, "/v1/quotas")

    def set_quotas(self, project_id: str, quotas: Mapping[str, int | None]) -> QuotasPayload:
        """Replace the quotas of a project, as the operator; one that is left out is the default."""
        path = f"{PROJECTS}/{quoted(project_id)}/quotas"
        return self._http.request(QuotasPayload, "PUT", path, json=dict(quotas))

    def audit(self, /, **filters: str | int | None) -> AuditList:
        """Return one page of the audit log, newest first.

        Filters: `actor`, `route`, `target`, `since`, `until`, `before`, `limit`.
        """
        return self._http.get(AuditList, "/v1/audit", filters)
