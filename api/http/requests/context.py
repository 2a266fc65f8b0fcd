"""What routes are given: the service's parts, the caller, the body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.bell import Bell
from api.dashboard.sessions import COOKIE, read_session
from api.database import Database
from api.identity import NotAuthenticated, Principal, Scope, authenticate
from api.routes.lanes import DatasetLanes
from api.runs.journal import utc_now
from api.settings import Settings
from trainer.stores.base import BlobStore

BEARER = HTTPBearer(auto_error=False, description="API key, runner token or attempt token.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the service that a request may use."""

    settings: Settings
    database: Database
    bell: Bell
    store: BlobStore
    lanes: DatasetLanes
    node_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What rented nodes get of the service's environment."""

    @property
    def cursor_secret(self) -> str:
        """What cursors are signed with."""
        return self.settings.secret_key.get_secret_value()


def get_services(request: Request) -> Services:
    """Return the application's parts."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]


def bearer_token(credentials: Credentials) -> str:
    """Return the token of the Authorization header; raises NotAuthenticated without one."""
    if credentials is None or not credentials.credentials:
        raise NotAuthenticated("Send `Authorization: Bearer <key>`.")
    return credentials.credentials


Token = Annotated[str, Depends(bearer_token)]


def principal_with(scope: Scope) -> Callable[..., Principal]:
    """Return the dependency that admits keys with `scope` and gives the caller.

    A browser's session stands for its key, for reading only: no other site's form can act by it.
    """

    def admit(request: Request, services: ServicesDep, credentials: Credentials) -> Principal:
        cookie = request.cookies.get(COOKIE) if request.method == "GET" else None
        with services.database.transaction() as session:
            if credentials is None and cookie is not None:
                secret = services.cursor_secret
                principal = read_session(session, cookie, secret=secret, now=utc_now())
            else:
                principal = authenticate(session, bearer_token(credentials))
        principal.require(scope)
        return principal

    return admit


Reader = Annotated[Principal, Depends(principal_with(Scope.RUNS_READ))]
Writer = Annotated[Principal, Depends(principal_with(Scope.RUNS_WRITE))]
Admin = Annotated[Principal, Depends(principal_with(Scope.ADMIN))]
RunnerKey = Annotated[Principal, Depends(principal_with(Scope.RUNNER))]


async def read_body(request: Request) -> bytes:
    """Return the raw body; its size was limited at the edge."""
    return await request.body()


RawBody = Annotated[bytes, Depends(read_body)]
