"""The audit log: one record per successful change, in its transaction, and none for the rest."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import func, select

from api.runs import store
from api.tables import AuditRecord, Run
from api.tables.database import Database
from tests.api.http.access.conftest import Cast
from tests.fixtures.factories import spec_body


async def records(cast: Cast, **params: object) -> list[dict[str, object]]:
    response = await cast.of("admin")("GET", "/v1/audit", params=params)
    assert response.status_code == 200, response.text
    data: list[dict[str, object]] = response.json()["data"]
    return data


async def test_a_change_is_recorded_with_who_what_and_the_values(cast: Cast) -> None:
    admin, path = cast.of("admin"), "/v1/members/ada@example.org"
    await admin("PUT", path, json={"role": "viewer"})
    response = await admin("PUT", path, json={"role": "member"})
    newest, first = await records(cast)
    assert (newest["actor"], newest["route"]) == ("key:test", "PUT /v1/members/{email}")
    assert newest["target"] == "ada@example.org"
    assert newest["request_id"] == response.headers["x-request-id"]
    (change,) = newest["changes"]  # type: ignore[misc]
    assert (change["table"], change["action"]) == ("members", "changed")
    assert (change["before"], change["after"]) == ({"role": "viewer"}, {"role": "member"})
    assert first["changes"][-1]["after"] == {"role": "viewer", "accepted_at": None}  # type: ignore[index]


async def test_a_submitted_run_and_its_cancellation_are_recorded_once_each(cast: Cast) -> None:
    member = cast.of("member")
    run = (await member("POST", "/v1/runs", json=spec_body())).json()
    for _ in range(2):
        await member("POST", f"/v1/runs/{run['id']}/cancel")
    again, cancelled, created = await records(cast)
    assert created["target"] == run["id"]
    (change,) = cancelled["changes"]  # type: ignore[misc]
    assert change["after"] == {"desired_state": "cancelled", "status": "cancelled"}
    assert (again["target"], again["changes"]) == (run["id"], [])


async def test_an_experiment_is_recorded_under_its_key_when_it_is_made_and_edited(
    cast: Cast,
) -> None:
    member, spec = cast.of("member"), {"key": "v0.1", "title": "Longer answers"}
    made = await member("POST", "/v1/experiments", json=spec)
    assert made.status_code == 201, made.text
    await member("PATCH", "/v1/experiments/v0.1", json={"title": "Shorter answers"})
    edited, created = await records(cast)
    assert (created["target"], edited["target"]) == ("v0.1", "v0.1")
    (change,) = created["changes"]  # type: ignore[misc]
    assert (change["table"], change["action"]) == ("experiments", "created")
    assert change["after"] == {"key": "v0.1", "parent_id": None}
    assert len(await records(cast, target="v0.1")) == 2


async def test_reads_refusals_and_repetitions_are_not_recorded(cast: Cast) -> None:
    member = cast.of("member")
    await member("GET", "/v1/runs")
    await member("POST", "/v1/runs/plan", json=spec_body())
    await member("POST", "/v1/runs", json={})
    await member("POST", "/v1/runs/none/cancel")
    await member("PUT", "/v1/limits", json={})
    assert await records(cast) == []
    headers = {"Authorization": f"Bearer {member.secret}", "Idempotency-Key": "k"}
    for _ in range(2):
        await cast.http.post("/v1/runs", json=spec_body(), headers=headers)
    assert len(await records(cast)) == 1


async def test_a_change_that_is_undone_leaves_no_record(
    cast: Cast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = cast.of("member")
    run = (await member("POST", "/v1/runs", json=spec_body())).json()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("after the change, before the commit")

    monkeypatch.setattr(store, "next_waiting", fail)
    assert (await member("POST", f"/v1/runs/{run['id']}/cancel")).status_code == 500
    monkeypatch.undo()
    with database.transaction() as session:
        assert session.get_one(Run, run["id"]).status == "queued"
        assert session.scalar(select(func.count()).select_from(AuditRecord)) == 1


async def test_the_record_shares_the_transaction_of_the_change(
    cast: Cast, database: Database
) -> None:
    await cast.of("member")("POST", "/v1/runs", json=spec_body())
    with database.transaction() as session:
        run = session.scalars(select(Run)).one()
        query = "SELECT xmin::text FROM {} WHERE id = '{}'"
        record = session.scalars(select(AuditRecord)).one()
        by = [
            session.connection().exec_driver_sql(query.format(table, identity)).scalar_one()
            for table, identity in (("runs", run.id), ("audit_records", record.id))
        ]
    assert by[0] == by[1]


async def test_the_log_is_filtered_and_paged(cast: Cast) -> None:
    admin = cast.of("admin")
    for name in ("a", "b", "c"):
        await admin("PUT", f"/v1/members/{name}@example.org", json={"role": "viewer"})
    await admin("DELETE", "/v1/members/a@example.org")
    assert len(await records(cast, route="DELETE")) == 1
    assert len(await records(cast, target="b@example.org")) == 1
    assert len(await records(cast, actor="key:nobody")) == 0
    assert len(await records(cast, since="2100-01-01T00:00:00Z")) == 0
    assert len(await records(cast, until="2100-01-01T00:00:00Z")) == 4
    page = await records(cast, limit=3)
    rest = await records(cast, limit=3, before=page[-1]["id"])
    assert [len(page), len(rest)] == [3, 1]


async def test_a_project_sees_only_its_own_records(cast: Cast) -> None:
    await cast.of("admin")("PUT", "/v1/members/ada@example.org", json={"role": "viewer"})
    response: httpx.Response = await cast.stranger("admin")("GET", "/v1/audit")
    assert response.json()["data"] == []
