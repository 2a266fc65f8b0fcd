"""Keys of every role in one project, and of a stranger in another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import pytest

from api.tables.access.identity import Principal, Scope
from api.tables.access.keys import NewKey, issue_key
from api.tables.access.roles import SCOPES_OF_ROLE, USER_SCOPES, Role
from api.tables.database import Database
from tests.api.fixtures.migrated import OTHER_PROJECT, PROJECT

SCOPES_OF: dict[str, frozenset[Scope]] = {
    **{role.value: frozenset(map(Scope, SCOPES_OF_ROLE[role])) for role in Role},
    "operator": frozenset(USER_SCOPES),
    "runner": frozenset({Scope.RUNNER}),
}


def make_key(database: Database, scopes: Iterable[Scope], *, project_id: str = PROJECT) -> str:
    new = NewKey(name="test", scopes=frozenset(scopes))
    with database.transaction() as session:
        issued = issue_key(session, project_id, new, person_id=None, actor="test")
    return issued.secret


@dataclass(frozen=True)
class Caller:
    """Somebody with a key."""

    http: httpx.AsyncClient
    secret: str

    async def __call__(self, method: str, path: str, **options: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return await self.http.request(method, path, headers=headers, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cast:
    """Callers by role."""

    http: httpx.AsyncClient
    database: Database

    def of(self, role: str, *, project_id: str = PROJECT) -> Caller:
        return Caller(self.http, make_key(self.database, SCOPES_OF[role], project_id=project_id))

    def stranger(self, role: str = "operator") -> Caller:
        return self.of(role, project_id=OTHER_PROJECT)

    def with_secret(self, secret: str) -> Caller:
        return Caller(self.http, secret)


@pytest.fixture
def cast(client: httpx.AsyncClient, database: Database) -> Cast:
    client.headers.pop("Authorization")
    return Cast(client, database)


def principal(role: str) -> Principal:
    scopes = frozenset(scope.value for scope in SCOPES_OF[role])
    return Principal(project_id=PROJECT, key_id="key_x", key_name="x", scopes=scopes)
