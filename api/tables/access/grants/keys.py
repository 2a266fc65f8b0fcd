"""Agent keys: API keys that read and write runs, each with a grant."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.tables import ApiKey, RunGrant
from api.tables.access.identity import PREFIX_CHARS, IdentityError, Principal, Scope, new_key
from api.tables.ids import new_id

SCOPES = (Scope.RUNS_READ, Scope.RUNS_WRITE)
MAX_KEYS = 200
"""Agent keys that a project may have at once, without the revoked ones."""


class AgentKeyNotFound(IdentityError):
    """The project has no such agent key, or the caller's key has no grant."""


class TooManyAgentKeys(IdentityError):
    """The project has as many agent keys as it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKey:
    """A key and its grant."""

    key: ApiKey
    grant: RunGrant


def create(
    session: Session, caller: Principal, name: str, amounts: Mapping[str, float]
) -> tuple[AgentKey, str]:
    """Store a key with its grant; return it with the key itself, which is stored as a hash only.

    `amounts`: `num_runs`, `extra_usd`, `extra_hours`. Raises TooManyAgentKeys.
    """
    valid = select(func.count()).select_from(RunGrant).join(ApiKey, ApiKey.id == RunGrant.key_id)
    if (
        session.scalar(
            valid.where(RunGrant.project_id == caller.project_id, ApiKey.revoked_at.is_(None))
        )
        or 0
    ) >= MAX_KEYS:
        raise TooManyAgentKeys(
            f"The project has {MAX_KEYS} agent keys: revoke one that is no longer used"
            " (hillclimb agent-key revoke)."
        )
    secret = new_key()
    key = ApiKey(
        id=new_id("key"),
        project_id=caller.project_id,
        name=name,
        prefix=secret[:PREFIX_CHARS],
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        scopes=[scope.value for scope in SCOPES],
    )
    session.add(key)
    session.flush()
    grant = RunGrant(
        key_id=key.id, project_id=caller.project_id, created_by=caller.actor, **amounts
    )
    session.add(grant)
    session.flush()
    return AgentKey(key=key, grant=grant), secret


def list_keys(session: Session, project_id: str, *, limit: int) -> list[AgentKey]:
    """Return the newest agent keys of the project, the revoked ones included."""
    rows = session.execute(
        select(ApiKey, RunGrant)
        .join(RunGrant, RunGrant.key_id == ApiKey.id)
        .where(RunGrant.project_id == project_id)
        .order_by(RunGrant.created_at.desc(), RunGrant.key_id.desc())
        .limit(limit)
    )
    return [AgentKey(key=key, grant=grant) for key, grant in rows]


def own(session: Session, caller: Principal) -> AgentKey:
    """Return the caller's key with its grant; raises AgentKeyNotFound if it has none."""
    grant = session.get(RunGrant, caller.key_id)
    if grant is None:
        raise AgentKeyNotFound(
            "This key has no grant: the number of runs that it may create is not limited."
        )
    return AgentKey(key=session.get_one(ApiKey, caller.key_id), grant=grant)


def change(
    session: Session, project_id: str, key_id: str, amounts: Mapping[str, float]
) -> AgentKey:
    """Replace amounts of a grant; what was used stays used. Raises AgentKeyNotFound."""
    agent_key = _get(session, project_id, key_id)
    for name, amount in amounts.items():
        setattr(agent_key.grant, name, amount)
    session.flush()
    return agent_key


def revoke(session: Session, project_id: str, key_id: str, *, now: datetime) -> AgentKey:
    """Make the key invalid from now on; repeating it changes nothing. Raises AgentKeyNotFound."""
    agent_key = _get(session, project_id, key_id)
    agent_key.key.revoked_at = agent_key.key.revoked_at or now
    session.flush()
    return agent_key


def _get(session: Session, project_id: str, key_id: str) -> AgentKey:
    grant = session.get(RunGrant, key_id, with_for_update=True)
    if grant is None or grant.project_id != project_id:
        raise AgentKeyNotFound(f"The project has no agent key {key_id!r}.")
    return AgentKey(key=session.get_one(ApiKey, key_id), grant=grant)
