"""Dependencies of routes: the service's parts, the caller, the body.

All are asynchronous, also those that wait for nothing: the framework runs any other in a thread,
which takes longer than they do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.requests.services import Services
from api.tables.access.idempotency import RequestKey
from api.tables.access.identity import NotAuthenticated, Principal, Scope

__all__ = [
    "Admin",
    "Operator",
    "RawBody",
    "Reader",
    "RunnerKey",
    "Services",
    "ServicesDep",
    "Token",
    "Writer",
    "request_key",
]

SLACK_TIMEOUT_S = 5.0
"""A hanging Slack occupies a thread of the API's pool for no longer."""
BEARER = HTTPBearer(auto_error=False, description="API key, runner token or attempt token.")


async def get_services(request: Request) -> Services:
    """Return the application's parts."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]


async def bearer_token(credentials: Credentials) -> str:
    """Return the token of the Authorization header; raises NotAuthenticated without one."""
    if credentials is None or not credentials.credentials:
        raise NotAuthenticated("Send `Authorization: Bearer <key>`.")
    return credentials.credentials


Token = Annotated[str, Depends(bearer_token)]


def principal_with(scope: Scope) -> Callable[..., Awaitable[Principal]]:
    """Return a dependency that returns the caller whom the gate admitted, and requires `scope`."""

    async def admit(request: Request, _documented: Credentials) -> Principal:
        caller: Principal | None = request.state.caller
        if caller is None:
            raise NotAuthenticated("Send `Authorization: Bearer <key>`.")
        caller.require(scope)
        return caller

    return admit


Reader = Annotated[Principal, Depends(principal_with(Scope.RUNS_READ))]
Writer = Annotated[Principal, Depends(principal_with(Scope.RUNS_WRITE))]
Admin = Annotated[Principal, Depends(principal_with(Scope.ADMIN))]
Operator = Annotated[Principal, Depends(principal_with(Scope.OPERATOR))]
RunnerKey = Annotated[Principal, Depends(principal_with(Scope.RUNNER))]


async def read_body(request: Request) -> bytes:
    """Return the raw body, whose size `RequestEdge` limits."""
    return await request.body()


RawBody = Annotated[bytes, Depends(read_body)]


def request_key(caller: Principal, path: str, key: str | None, body: bytes) -> RequestKey | None:
    """Return the identity of a repeatable POST; None without an Idempotency-Key."""
    if key is None:
        return None
    return RequestKey(project_id=caller.project_id, method="POST", path=path, key=key, body=body)
