"""Keys: hashed at rest, found by prefix, scoped, revocable."""

import pytest
from sqlalchemy import text

from api.runs.journal import utc_now
from api.tables import ApiKey
from api.tables.access.identity import (
    DEFAULT_PROJECT,
    USER_SCOPES,
    NotAllowed,
    NotAuthenticated,
    Scope,
    WeakKey,
    authenticate,
    ensure_key,
    new_key,
)
from api.tables.database import Database


def test_a_key_made_twice_is_one_key_of_the_default_project(database: Database) -> None:
    key = new_key()
    for _ in range(2):
        with database.transaction() as session:
            ensure_key(session, key, name="mine", scopes=USER_SCOPES)
    with database.transaction() as session:
        principal = authenticate(session, key, now=utc_now())
        assert session.query(ApiKey).count() == 1
    assert (principal.project_id, principal.actor) == (DEFAULT_PROJECT, "key:mine")


def test_the_database_never_holds_the_key(database: Database) -> None:
    key = new_key()
    with database.transaction() as session:
        ensure_key(session, key, name="mine", scopes=USER_SCOPES)
    with database.transaction() as session:
        stored = str(session.execute(text("SELECT * FROM api_keys")).all())
    assert key not in stored
    assert key[12:] not in stored


def test_a_key_with_the_same_prefix_is_another_key(database: Database) -> None:
    key = new_key()
    with database.transaction() as session:
        ensure_key(session, key, name="mine", scopes=USER_SCOPES)
    for wrong in (key[:-1] + "!", key[:12], key + "a", "", "ключ"):
        with pytest.raises(NotAuthenticated), database.transaction() as session:
            authenticate(session, wrong, now=utc_now())


def test_a_revoked_key_is_refused(database: Database) -> None:
    key = new_key()
    with database.transaction() as session:
        ensure_key(session, key, name="mine", scopes=USER_SCOPES)
        session.query(ApiKey).one().revoked_at = utc_now()
    with pytest.raises(NotAuthenticated), database.transaction() as session:
        authenticate(session, key, now=utc_now())


def test_a_key_may_do_only_what_its_scopes_say(database: Database) -> None:
    key = new_key()
    with database.transaction() as session:
        ensure_key(session, key, name="mine", scopes=[Scope.RUNS_READ])
        principal = authenticate(session, key, now=utc_now())
    principal.require(Scope.RUNS_READ)
    for scope in (Scope.RUNS_WRITE, Scope.RUNNER, Scope.ADMIN):
        with pytest.raises(NotAllowed, match=scope.value):
            principal.require(scope)


def test_a_short_key_is_refused(database: Database) -> None:
    with pytest.raises(WeakKey), database.transaction() as session:
        ensure_key(session, "hc_short", name="mine", scopes=USER_SCOPES)
