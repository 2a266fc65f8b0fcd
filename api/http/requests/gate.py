"""The gate before every route: it looks at the token before anything reads the body.

It finds the row of the route in `PERMISSIONS`, identifies the caller, counts the request against
the rate of the key or attempt, and opens the draft of the audit log. A route without a row is
refused. `limits.entrance` refuses a key that `api.tables.access.identity` does not know, and all
keys of an address that has sent too many wrong ones.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from re import Pattern

from fastapi import FastAPI, Request
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from api.http.dashboard.sessions import COOKIE, read_session
from api.http.handlers import answer, not_allowed
from api.http.requests.limits.entrance import ATTEMPT, entrance_of, origin_of
from api.http.requests.limits.late_bodies import LateBody
from api.http.requests.limits.rates import Rates
from api.http.requests.permissions import CHANGES, FORMS, PAGES, PERMISSIONS, SCOPE_OF, Access
from api.http.requests.services import Services
from api.runs.errors import UnknownToken
from api.runs.journal import utc_now
from api.tables.access import audit
from api.tables.access.audit import AuditDraft, Origin
from api.tables.access.errors import IdentityError, NotAllowed, NotAuthenticated
from api.tables.access.identity import Principal
from api.tables.access.members import look_up_again
from api.tables.access.roles import Scope

log = logging.getLogger(__name__)

TARGETS = (
    "run_id", "key_id", "campaign_id", "issue_id", "exclusion_id", "key", "email", "project_id",
    "name",
)  # fmt: skip
"""Parameters of paths that name what a request changes, the most telling first."""
SUBMISSION = "POST /v1/runs"
"""The route whose every step shares few threads (`FewThreads`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedRoute:
    """A route as the gate knows it."""

    name: str
    """Method and path, as in `PERMISSIONS`."""
    method: str
    pattern: Pattern[str]

    @property
    def is_fixed(self) -> bool:
        """True for a path without parameters."""
        return "{" not in self.name


def gated(routes: Iterable[Route]) -> tuple[GatedRoute, ...]:
    """Return the routes in the order in which the application matches them."""
    return tuple(
        GatedRoute(name=f"{method} {route.path}", method=method, pattern=route.path_regex)
        for route in routes
        for method in sorted(route.methods or ())
        if method != "HEAD"
    )


class Gate:
    """Middleware that admits a request to its route, or refuses it with a problem."""

    def __init__(self, app: ASGIApp, routes: Sequence[GatedRoute]) -> None:
        self._app = app
        self._routes = routes
        self._methods: dict[str, list[str]] = defaultdict(list)
        for route in routes:
            if route.is_fixed:
                self._methods[route.name.partition(" ")[2]].append(route.method)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass on what matches no route: the application answers 404 or 405."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = None
        allowed = self._methods.get(scope["path"])
        if allowed is not None and scope["method"] not in {*allowed, "HEAD"}:
            # As OpenAPI matches paths: no other route takes this for the value of a parameter.
            await not_allowed(Request(scope), allowed)(scope, receive, send)
            return
        for route in self._routes:
            match = route.pattern.match(scope["path"])
            if match and route.method == scope["method"]:
                await self._enter(route, match.groupdict(), scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _enter(
        self,
        route: GatedRoute,
        parameters: dict[str, str],
        scope: Connection,
        receive: Receive,
        send: Send,
    ) -> None:
        request = Request(scope)
        access = PERMISSIONS.get(route.name)
        try:
            caller = await _admitted(request, route.name, access)
        except (IdentityError, UnknownToken, OperationalError, PoolTimeout) as error:
            await answer(request, error)(scope, receive, send)
            return
        scope["state"]["caller"] = caller
        if caller is None or access is None or route.method == "GET":
            await self._app(scope, receive, send)
            return
        late = LateBody(
            receive=receive,
            send=send,
            look_again=partial(run_in_threadpool, _look_again, request, caller, SCOPE_OF[access]),
        )
        await self._change(route, parameters, late, scope)
        if late.refusal is not None:
            await answer(request, late.refusal)(scope, receive, send)

    async def _change(
        self, route: GatedRoute, parameters: dict[str, str], late: LateBody, scope: Connection
    ) -> None:
        """Pass a request on that may change something, with the draft of its audit record."""
        request, access = Request(scope), PERMISSIONS[route.name]
        if access not in CHANGES:
            await late.pass_to(self._app, scope)
            return
        draft = AuditDraft(
            caller=scope["state"]["caller"],
            route=route.name,
            target=next((parameters[each] for each in TARGETS if each in parameters), None),
            request_id=request.state.request_id,
        )
        if access not in FORMS:
            # A form answers with a redirect, and may change nothing: its transaction records it.
            late.send = _Recorder(services=_services(request), draft=draft, send=late.send)
        with audit.auditing(draft):
            await late.pass_to(self._app, scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorder:
    """Records a successful request that no transaction of its own has recorded."""

    services: Services
    draft: AuditDraft
    send: Send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and 200 <= message["status"] < 300:
            is_replayed = Headers(raw=message["headers"]).get("idempotent-replayed") == "true"
            if not self.draft.is_recorded and not is_replayed:
                await run_in_threadpool(self._record)
        await self.send(message)

    def _record(self) -> None:
        """The change is committed: a database that fails now must not make the request fail."""
        try:
            with self.services.database.transaction() as session:
                audit.store(session, self.draft)
        except SQLAlchemyError:
            draft = self.draft
            log.exception("no audit record of request %s: %s", draft.request_id, draft.route)


async def _admitted(request: Request, route: str, access: Access | None) -> Principal | None:
    """Return the caller; null where the route needs none. Raises what `_caller` does."""
    if access is None:
        raise NotAllowed("No permission is declared for this route: nobody may call it.")
    if access is Access.OPEN:
        return None
    services = _services(request)
    entrance, origin = entrance_of(request), origin_of(request, route)
    if access is Access.ATTEMPT:
        token = _bearer(request)
        attempt_id = entrance.recent_attempts.get(token)
        if attempt_id is None:
            await entrance.check(origin, token, ATTEMPT)
            attempt_id = await run_in_threadpool(entrance.attempt_of, token, origin)
        _rates(request).count_attempt(attempt_id)
        return None
    caller = await _caller(request, services, access, origin)
    if caller is not None:
        caller.require(SCOPE_OF[access])
        _rates(request).count(caller)
    return caller


async def _caller(
    request: Request, services: Services, access: Access, origin: Origin
) -> Principal | None:
    """Return the principal of the key or session; null for a page without a valid session.

    A session is accepted in place of a key only for reading, so a form of another site can change
    nothing. Raises NotAuthenticated.
    """
    # Forms of pages carry a token of their session; other changes need a key.
    reads_cookie = request.method == "GET" or access in PAGES
    cookie = request.cookies.get(COOKIE) if reads_cookie else None
    has_key = "authorization" in request.headers and access not in PAGES
    try:
        if not has_key and cookie is not None:
            return await run_in_threadpool(_of_session, services, cookie)
        key, entrance = _bearer(request), entrance_of(request)
        await entrance.check(origin, key)
        look = partial(entrance.enter, key, origin)
        if origin.route == SUBMISSION:
            return await services.run_pools.submissions.run(look)
        return await run_in_threadpool(look)
    except NotAuthenticated:
        if access in PAGES:
            return None
        raise


def _look_again(request: Request, caller: Principal, scope: Scope) -> None:
    """Raise IdentityError for an admitted caller who has lost the key, session or role."""
    with _services(request).database.transaction() as session:
        look_up_again(session, caller, now=utc_now()).require(scope)


def _of_session(services: Services, cookie: str) -> Principal:
    with services.database.lookup() as session:
        return read_session(session, cookie, secret=services.cursor_secret, now=utc_now())


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("Send `Authorization: Bearer <key>`.")
    return token.strip()


def _services(request: Request) -> Services:
    app: FastAPI = request.app
    services: Services = app.state.services
    return services


def _rates(request: Request) -> Rates:
    rates: Rates = request.app.state.rates
    return rates
