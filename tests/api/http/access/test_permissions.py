"""The permissions of every route, through the real application."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from api.app import ROUTERS
from api.http.requests.permissions import CHANGES, PAGES, PERMISSIONS, SCOPE_OF, Access
from api.tables.access.roles import Scope
from tests.api.http.access.conftest import SCOPES_OF, Cast
from tests.api.http.conftest import bearer

WITHOUT_KEY = "nobody"
ROLES = (WITHOUT_KEY, *SCOPES_OF)


def routes_of(app: FastAPI) -> set[str]:
    own = [route for route in app.routes if isinstance(route, Route)]
    included = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    assert len(app.routes) == len(own) + len(ROUTERS), "a router that create_app does not know"
    methods = ((route, route.methods or set()) for route in (*own, *included))
    return {f"{method} {route.path}" for route, names in methods for method in names - {"HEAD"}}


def test_every_route_has_a_permission_and_every_permission_a_route(app: FastAPI) -> None:
    assert routes_of(app) == set(PERMISSIONS)


def test_the_document_names_no_operation_without_a_permission(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    operations = {f"{method.upper()} {path}" for path, each in paths.items() for method in each}
    documented = {re.sub(r":path\}", "}", row) for row in PERMISSIONS}
    assert operations <= documented


def test_every_kind_of_access_but_three_has_a_scope() -> None:
    assert set(Access) - set(SCOPE_OF) == {Access.OPEN, Access.ATTEMPT}
    by_others = {row for row, access in PERMISSIONS.items() if access not in CHANGES}
    assert all(row.startswith(("GET ", "POST ")) for row in by_others)


def path_of(row: str) -> tuple[str, str]:
    """Return a method and a path whose objects do not exist."""
    method, path = row.split(" ")
    path = path.replace("{email}", "a@example.org").replace("{action}", "pause")
    path = re.sub(r"\{(number|step|base)\}", "1", path)
    return method, re.sub(r"\{[^}]+\}", "none", path)


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_reaches_the_routes_of_its_scopes_and_no_others(cast: Cast, role: str) -> None:
    """Every route × every role: what is refused is refused by the gate, and nothing else is."""
    secret = cast.of(role).secret if role != WITHOUT_KEY else None
    headers = bearer(secret) if secret is not None else {}
    wrong = []
    for row, access in PERMISSIONS.items():
        method, path = path_of(row)
        response = await cast.http.request(method, path, headers=headers)
        if outcome_of(response) != expected(role, access, row):
            wrong.append((row, access, response.status_code, response.text[:200]))
    assert wrong == []


def expected(role: str, access: Access, row: str) -> str:
    if row == "GET /metrics":
        # It looks at the operator's own token, which no principal has.
        return "not_authenticated"
    if access is Access.OPEN:
        return "reached"
    if access is Access.ATTEMPT:
        return "unknown_token" if role != WITHOUT_KEY else "not_authenticated"
    if role == WITHOUT_KEY:
        return "sign in" if access in PAGES else "not_authenticated"
    return "reached" if SCOPE_OF[access] in SCOPES_OF[role] else "not_allowed"


def outcome_of(response: httpx.Response) -> str:
    if response.status_code == 303 and response.headers["location"].startswith("/login?next="):
        return "sign in"
    is_problem = response.headers.get("content-type") == "application/problem+json"
    code = str(response.json()["code"]) if is_problem else ""
    refusals = ("not_allowed", "not_authenticated", "unknown_token")
    return code if code in refusals and response.request.url.path != "/v1/attempts/claim" else (
        "reached"
    )  # fmt: skip


async def test_a_route_without_a_row_is_refused_to_everybody(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(PERMISSIONS, "GET /v1/runs")  # type: ignore[arg-type]
    response = await cast.of("operator")("GET", "/v1/runs")
    assert (response.status_code, response.json()["code"]) == (403, "not_allowed")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/runs"), ("POST", "/v1/ingest"), ("PUT", "/v1/limits"), ("POST", "/v1/keys")],
)
async def test_a_token_is_looked_at_before_the_body(cast: Cast, method: str, path: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for headers in ({}, bearer("hc_" + "0" * 64)):
        response = await cast.http.request(method, path, content=body(), headers=headers)
        assert response.status_code == 401, response.text


async def test_an_operator_is_apart_from_the_admins_of_projects(cast: Cast) -> None:
    admin = cast.of("admin")
    for row, access in PERMISSIONS.items():
        if access is Access.OPERATOR:
            response = await admin(*path_of(row))
            assert response.status_code == 403
            assert Scope.OPERATOR.value in response.json()["detail"]
