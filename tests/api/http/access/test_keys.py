"""Keys: created, listed, rotated, revoked and expired, with effects at the next request."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from api.runs.journal import utc_now
from api.tables import ApiKey, AuditRecord
from api.tables.database import Database
from tests.api.http.access.conftest import Cast
from tests.api.http.conftest import KEY


async def test_a_key_is_created_used_and_listed_without_its_secret(cast: Cast) -> None:
    admin = cast.of("admin")
    body = {"name": "ci", "scopes": ["runs:read", "runs:write"]}
    created = await admin("POST", "/v1/keys", json=body)
    assert created.status_code == 201, created.text
    secret = created.json()["secret"]
    whoami = (await cast.with_secret(secret)("GET", "/v1/whoami")).json()
    assert (whoami["actor"], whoami["role"]) == ("key:ci", "member")
    listed = await admin("GET", "/v1/keys")
    assert secret not in listed.text
    first = listed.json()["data"][0]
    assert first["prefix"] == secret[:12]
    assert first["last_used_at"] is not None
    assert first["created_by"] == "key:test"


async def test_keys_are_paged_newest_first(cast: Cast) -> None:
    admin = cast.of("admin")
    for name in ("a", "b", "c"):
        await admin("POST", "/v1/keys", json={"name": name, "scopes": ["runs:read"]})
    names: list[str] = []
    before = None
    while True:
        params = {"limit": 2} | ({"before": before} if before else {})
        page = (await admin("GET", "/v1/keys", params=params)).json()
        names += [key["name"] for key in page["data"]]
        before = page["data"][-1]["id"]
        if not page["has_more"]:
            break
    assert names == ["c", "b", "a", "test"]


async def test_after_a_rotation_both_secrets_work_until_the_grace_ends(
    cast: Cast, database: Database
) -> None:
    admin = cast.of("admin")
    created = (await admin("POST", "/v1/keys", json={"name": "ci", "scopes": ["runs:read"]})).json()
    path = f"/v1/keys/{created['id']}/rotate"
    rotated = (await admin("POST", path, json={"grace_hours": 1})).json()
    assert rotated["id"] == created["id"]
    assert rotated["secret"] != created["secret"]
    for secret in (created["secret"], rotated["secret"]):
        assert (await cast.with_secret(secret)("GET", "/v1/runs")).status_code == 200
    with database.transaction() as session:
        past = utc_now() - timedelta(seconds=1)
        session.execute(
            update(ApiKey).where(ApiKey.id == created["id"]).values(previous_until=past)
        )
    assert (await cast.with_secret(created["secret"])("GET", "/v1/runs")).status_code == 401
    assert (await cast.with_secret(rotated["secret"])("GET", "/v1/runs")).status_code == 200


async def test_a_second_rotation_ends_the_secret_before_the_first(cast: Cast) -> None:
    admin = cast.of("admin")
    key = (await admin("POST", "/v1/keys", json={"name": "ci", "scopes": ["runs:read"]})).json()
    secrets = [key["secret"]]
    for _ in range(2):
        rotated = await admin("POST", f"/v1/keys/{key['id']}/rotate", json={})
        secrets.append(rotated.json()["secret"])
    statuses = [
        (await cast.with_secret(secret)("GET", "/v1/runs")).status_code for secret in secrets
    ]
    assert statuses == [401, 200, 200]


async def test_a_revoked_key_is_refused_at_once_and_stays_revoked(cast: Cast) -> None:
    admin = cast.of("admin")
    key = (await admin("POST", "/v1/keys", json={"name": "ci", "scopes": ["runs:read"]})).json()
    await admin("POST", f"/v1/keys/{key['id']}/rotate", json={"grace_hours": 24})
    for _ in range(2):
        revoked = await admin("DELETE", f"/v1/keys/{key['id']}")
        assert revoked.json()["revoked_at"] is not None
    assert (await cast.with_secret(key["secret"])("GET", "/v1/runs")).status_code == 401
    again = await admin("POST", f"/v1/keys/{key['id']}/rotate", json={})
    assert (again.status_code, again.json()["code"]) == (409, "key_fixed")


async def test_an_expired_key_is_refused(cast: Cast, database: Database) -> None:
    admin = cast.of("admin")
    soon = (utc_now() + timedelta(hours=1)).isoformat()
    body = {"name": "ci", "scopes": ["runs:read"], "expires_at": soon}
    key = (await admin("POST", "/v1/keys", json=body)).json()
    caller = cast.with_secret(key["secret"])
    assert (await caller("GET", "/v1/runs")).status_code == 200
    with database.transaction() as session:
        session.get_one(ApiKey, key["id"]).expires_at = utc_now() - timedelta(seconds=1)
    refused = await caller("GET", "/v1/runs")
    assert refused.status_code == 401
    assert "expired" in refused.json()["detail"]
    body["expires_at"] = (utc_now() - timedelta(days=1)).isoformat()
    assert (await admin("POST", "/v1/keys", json=body)).status_code == 422


@pytest.mark.parametrize("role", ["admin", "operator"])
async def test_only_the_operator_grants_the_scope_of_the_operator(cast: Cast, role: str) -> None:
    body = {"name": "root", "scopes": ["operator"]}
    response = await cast.of(role)("POST", "/v1/keys", json=body)
    assert response.status_code == (201 if role == "operator" else 403)


async def test_an_admin_cannot_rotate_or_revoke_a_key_of_the_operator(cast: Cast) -> None:
    body = {"name": "root", "scopes": ["operator", "admin"]}
    key = (await cast.of("operator")("POST", "/v1/keys", json=body)).json()
    admin = cast.of("admin")
    path = f"/v1/keys/{key['id']}"
    assert (await admin("POST", f"{path}/rotate", json={})).status_code == 403
    assert (await admin("DELETE", path)).status_code == 403


async def test_a_key_of_the_environment_cannot_be_changed_over_the_api(cast: Cast) -> None:
    bootstrap = cast.with_secret(KEY)
    (key,) = [
        each
        for each in (await bootstrap("GET", "/v1/keys")).json()["data"]
        if each["name"] == "bootstrap"
    ]
    for method, path in (("DELETE", ""), ("POST", "/rotate")):
        body = {"json": {}} if method == "POST" else {}
        refused = await bootstrap(method, f"/v1/keys/{key['id']}{path}", **body)
        assert (refused.status_code, refused.json()["code"]) == (409, "key_fixed")


async def test_the_role_of_its_owner_bounds_a_key_from_the_next_request_on(cast: Cast) -> None:
    admin, path = cast.of("admin"), "/v1/members/Ada@Example.org"
    assert (await admin("PUT", path, json={"role": "member"})).json()["email"] == "ada@example.org"
    body = {
        "name": "ada",
        "scopes": ["runs:read", "runs:write", "admin"],
        "owner": "ada@example.org",
    }
    ada = cast.with_secret((await admin("POST", "/v1/keys", json=body)).json()["secret"])

    async def role() -> object:
        response = await ada("GET", "/v1/whoami")
        return response.json()["role"] if response.status_code == 200 else response.status_code

    assert await role() == "member"
    await admin("PUT", path, json={"role": "admin"})
    assert await role() == "admin"
    await admin("PUT", path, json={"role": "viewer"})
    assert await role() == "viewer"
    assert (await ada("POST", "/v1/runs/none/cancel")).status_code == 403
    assert (await admin("DELETE", path)).status_code == 204
    assert await role() == 401
    assert (await admin("DELETE", path)).json()["code"] == "member_not_found"


async def test_no_secret_and_no_hash_of_one_reaches_the_audit_log(
    cast: Cast, database: Database
) -> None:
    admin = cast.of("admin")
    key = (await admin("POST", "/v1/keys", json={"name": "ci", "scopes": ["runs:read"]})).json()
    rotated = (await admin("POST", f"/v1/keys/{key['id']}/rotate", json={})).json()
    with database.transaction() as session:
        stored = session.get_one(ApiKey, key["id"])
        records = session.scalars(select(AuditRecord)).all()
        text = repr([record.changes for record in records])
    assert len(records) == 2
    for secret in (key["secret"], rotated["secret"], stored.sha256, str(stored.previous_sha256)):
        assert secret not in text
