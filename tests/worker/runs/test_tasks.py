"""Each task does its work with the settings of the process's environment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from api.notices.webhooks import store
from api.notices.webhooks.request import WebhookSpec
from api.runs.journal import Draft, append
from api.runs.status import RunStatus
from api.runs.store import lock_run
from api.settings import load_settings
from api.tables import ApiKey, SessionCode
from api.tables.access.identity import Principal, ensure_key
from api.tables.access.roles import Scope
from api.tables.access.secrets.keyring import Keyring
from hillclimb.process import tracing
from tests.fixtures.webhook_receiver import run_receiver
from tests.worker.run_simulation import PROJECT, RunSimulation
from worker import app, tasks
from worker.context import load_context, load_webhooks

CALLER = Principal(project_id=PROJECT, key_id="key_1", key_name="me", scopes=frozenset())
CACHED = (load_settings, load_context, load_webhooks)


@pytest.fixture
def process(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The environment of a worker's process, whose context is made on first use."""
    environment = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "HILLCLIMB_BLOBS_URL": str(tmp_path / "blobs"),
        "HILLCLIMB_SECRET_KEY": "x" * 32,
        "HILLCLIMB_WEBHOOK_LOOPBACK": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for each in CACHED:
        each.cache_clear()
    yield
    load_context().database.close()
    for each in CACHED:
        each.cache_clear()


@pytest.mark.usefixtures("process")
def test_a_run_is_scheduled_and_its_warning_reaches_a_webhook(sim: RunSimulation) -> None:
    sim.now = datetime.now(UTC)
    sim.register(slots=1)
    run_id = sim.submit("first")
    tasks.reconcile(run_id)
    assert sim.status(run_id) is RunStatus.PROVISIONING
    with run_receiver() as receiver:
        with sim.context.database.transaction() as session:
            keys = Keyring.of(load_settings())
            body = WebhookSpec(url=receiver.url, events=("run.warning",))
            store.create(session, keys, CALLER, body, now=sim.now)
        with sim.context.database.transaction() as session:
            data = {"code": "x", "message": "y"}
            append(session, lock_run(session, run_id), [Draft(type="run.warning", data=data)])
        tasks.deliver_webhooks()
    ((headers, content),) = receiver.requests
    assert headers["webhook-id"]
    assert run_id.encode() in content


@pytest.mark.usefixtures("process")
def test_codes_that_expired_are_deleted_and_others_stay(sim: RunSimulation) -> None:
    now = datetime.now(UTC)
    with sim.context.database.transaction() as session:
        ensure_key(session, "hc_" + "0" * 64, name="me", scopes=[Scope.RUNS_READ])
        session.flush()
        key = session.scalars(select(ApiKey)).one()
        for code, minutes in (("old", -90), ("new", 90)):
            expires_at = now + timedelta(minutes=minutes)
            place = {"project_id": key.project_id, "key_id": key.id}
            session.add(SessionCode(sha256=code, expires_at=expires_at, **place))
    tasks.reap()
    with sim.context.database.transaction() as session:
        assert session.scalars(select(SessionCode.sha256)).all() == ["new"]


@pytest.mark.usefixtures("process")
def test_the_sweeps_leave_a_quiet_service_as_it_is(sim: RunSimulation) -> None:
    run_id = sim.submit("first")
    for sweep in (
        *(tasks.watch_budgets, tasks.relay_events, tasks.exclude_failed_tasks),
        *(tasks.exchange_node_messages, tasks.deliver_messages, tasks.sweep_datasets),
        *(tasks.sweep_clusters, tasks.observe_clusters, tasks.ask_prices),
    ):
        sweep()
    assert sim.status(run_id) is RunStatus.QUEUED
    with sim.context.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(SessionCode)) == 0


def test_a_process_of_the_pool_traces_where_an_endpoint_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app.start_process()
    assert not tracing.is_tracing()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    app.start_process()
    assert tracing.is_tracing()
    app.stop_process()
    assert not tracing.is_tracing()
