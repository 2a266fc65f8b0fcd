"""`/v1/agent-keys`: API keys for coding agents, whose grants limit what they spend."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import Admin, Reader, ServicesDep
from api.runs.journal import utc_now
from api.tables.access.grants import keys
from api.tables.access.grants.keys import AgentKey, AgentKeyNotFound, TooManyAgentKeys
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.projects.service import (
    AgentKeyList,
    AgentKeyPayload,
    CreatedAgentKey,
    GrantPayload,
)
from hillclimb.spec.section import WHOLE

router = APIRouter(
    prefix="/v1/agent-keys",
    tags=["agents"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

NO_KEY = KINDS[AgentKeyNotFound]
Runs = Annotated[int, Field(ge=0, le=10_000, strict=True), WHOLE]
Extension = Annotated[float, Field(ge=0.0, le=1e9, strict=True)]


class NewAgentKey(BaseModel):
    """An agent key to create."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}$")]
    """Names the caller in events."""
    num_runs: Runs
    """Runs that the key may create."""
    extra_usd: Extension = 0.0
    """Dollars by which it may extend budgets of runs, all extensions together."""
    extra_hours: Extension = 0.0
    """Hours by which it may extend budgets of runs, all extensions together."""


class GrantChanges(BaseModel):
    """Amounts of a grant to replace; those that are left out stay."""

    model_config = ConfigDict(extra="forbid")

    num_runs: Runs | None = None
    extra_usd: Extension | None = None
    extra_hours: Extension | None = None


@router.post(
    "",
    operation_id="create_agent_key",
    summary="Create an agent key",
    status_code=201,
    responses={**documented(MALFORMED, KINDS[TooManyAgentKeys])},
)
def create_agent_key(services: ServicesDep, caller: Admin, body: NewAgentKey) -> CreatedAgentKey:
    """Return a key with the scopes runs:read and runs:write, shown this once, and its grant."""
    amounts = body.model_dump(exclude={"name"})
    with services.database.transaction() as session:
        made, secret = keys.create(session, caller, body.name, amounts)
        return CreatedAgentKey.of({**_facts(made), "key": secret})


@router.get("", operation_id="list_agent_keys", summary="List agent keys, newest first")
def list_agent_keys(
    services: ServicesDep,
    caller: Admin,
    limit: Annotated[int, Query(ge=1, le=keys.MAX_KEYS)] = keys.MAX_KEYS,
) -> AgentKeyList:
    """Return the newest agent keys of the project with what they used."""
    with services.database.transaction() as session:
        agent_keys = keys.list_keys(session, caller.project_id, limit=limit)
        return AgentKeyList(data=[describe_agent_key(each) for each in agent_keys])


@router.get(
    "/self",
    operation_id="get_own_agent_key",
    summary="Read the grant of one's own key",
    responses={**documented(NO_KEY)},
)
def get_own_agent_key(services: ServicesDep, caller: Reader) -> AgentKeyPayload:
    """Return the caller's key with its grant."""
    with services.database.transaction() as session:
        return describe_agent_key(keys.own(session, caller))


@router.patch(
    "/{key_id}",
    operation_id="change_agent_key",
    summary="Change the grant of an agent key",
    responses={**documented(MALFORMED, NO_KEY)},
)
def change_agent_key(
    services: ServicesDep, caller: Admin, key_id: str, body: GrantChanges
) -> AgentKeyPayload:
    """Replace amounts of the grant; what was used stays used."""
    amounts = body.model_dump(exclude_none=True)
    with services.database.transaction() as session:
        return describe_agent_key(keys.change(session, caller.project_id, key_id, amounts))


@router.delete(
    "/{key_id}",
    operation_id="revoke_agent_key",
    summary="Revoke an agent key",
    responses={**documented(NO_KEY)},
)
def revoke_agent_key(services: ServicesDep, caller: Admin, key_id: str) -> AgentKeyPayload:
    """Make the key invalid; its runs go on. Idempotent."""
    with services.database.transaction() as session:
        agent_key = keys.revoke(session, caller.project_id, key_id, now=utc_now())
        return describe_agent_key(agent_key)


def describe_agent_key(agent_key: AgentKey) -> AgentKeyPayload:
    """Return a key with its grant, without the key itself."""
    return AgentKeyPayload.of(_facts(agent_key))


def _facts(agent_key: AgentKey) -> dict[str, Any]:
    key, grant = agent_key.key, agent_key.grant
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "grant": GrantPayload.model_validate(grant),
        "created_by": grant.created_by,
        "created_at": grant.created_at,
        "revoked_at": key.revoked_at,
    }
