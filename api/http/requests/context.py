"""Dependencies of routes: the service's parts, the caller, the body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.admission.admission import Admission
from api.admission.rental import RentalSettings
from api.http.dashboard.sessions import COOKIE, read_session
from api.http.payloads.runs import run_as_json
from api.http.requests.thread_pools import DatasetPools
from api.notices.slack.web_api import SlackApi
from api.queue import TaskQueue
from api.runs.journal import utc_now
from api.settings import Settings
from api.tables.access.idempotency import RequestKey
from api.tables.access.identity import NotAuthenticated, Principal, Scope, authenticate
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore

SLACK_TIMEOUT_S = 5.0
"""A hanging Slack occupies a thread of the API's pool for no longer."""
BEARER = HTTPBearer(auto_error=False, description="API key, runner token or attempt token.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the service that a request may use."""

    settings: Settings
    database: Database
    task_queue: TaskQueue
    store: BlobStore
    lanes: DatasetPools
    node_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the service that rented nodes receive."""

    @property
    def cursor_secret(self) -> str:
        """The secret that signs cursors."""
        return self.settings.secret_key.get_secret_value()

    @property
    def slack(self) -> SlackApi:
        """Slack's Web API with the service's bot token."""
        settings = self.settings
        token = settings.slack_bot_token
        secret = "" if token is None else token.get_secret_value()
        return SlackApi(
            token=secret, base_url=settings.slack_api_base_url, timeout_s=SLACK_TIMEOUT_S
        )

    @property
    def admission(self) -> Admission:
        """Admission of runs by this service's settings."""
        settings = self.settings
        return Admission(
            database=self.database,
            rental=RentalSettings(
                clouds=settings.clouds,
                api_url=settings.node_api_url or settings.public_url,
                blobs_url=settings.node_blobs_url or settings.blobs_url,
                node_secrets=self.node_secrets,
            ),
            describe=run_as_json,
        )


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
    """Return a dependency that requires a key with `scope` and returns the caller.

    A browser session is accepted in place of its key only for reading, so a form of another site
    can change nothing.
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
    """Return the raw body, whose size `RequestEdge` limits."""
    return await request.body()


RawBody = Annotated[bytes, Depends(read_body)]


def request_key(caller: Principal, path: str, key: str | None, body: bytes) -> RequestKey | None:
    """Return the identity of a repeatable POST; None without an Idempotency-Key."""
    if key is None:
        return None
    return RequestKey(project_id=caller.project_id, method="POST", path=path, key=key, body=body)
