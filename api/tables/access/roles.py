"""Scopes of keys and roles of members: what each may do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Scope(StrEnum):
    """A permission of a key; none is granted by default."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    RUNNER = "runner"
    ADMIN = "admin"
    """Members, keys, limits and the audit log of the project."""
    OPERATOR = "operator"
    """What concerns every project: projects and their quotas, clouds, orphaned clusters."""


class Role(StrEnum):
    """A role of a member in a project."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


SCOPES_OF_ROLE: Mapping[Role, frozenset[str]] = {
    Role.VIEWER: frozenset({Scope.RUNS_READ.value}),
    Role.MEMBER: frozenset({Scope.RUNS_READ.value, Scope.RUNS_WRITE.value}),
    Role.ADMIN: frozenset({Scope.RUNS_READ.value, Scope.RUNS_WRITE.value, Scope.ADMIN.value}),
}
"""Total over the roles. No role has the scope of runners or of the operator: both are keys'."""
USER_SCOPES = (Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.ADMIN, Scope.OPERATOR)
RUNNER_SCOPES = (Scope.RUNNER,)


def role_with(scopes: frozenset[str]) -> Role | None:
    """Return the highest role whose scopes are all among `scopes`."""
    return next((role for role in reversed(Role) if SCOPES_OF_ROLE[role] <= scopes), None)
