"""`/metrics`: right numbers, no ids or names, and operators alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from api.settings import Settings
from api.tables.database import Database
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import KEY, bearer
from tests.fixtures.factories import spec_body

TOKEN = "metrics-token-of-the-operator-0123456789"
DOCS = Path(__file__).resolve().parents[4] / "docs"
DASHBOARD = DOCS / "grafana.json"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"metrics_token": SecretStr(TOKEN)})


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, tuple[str, ...]], float]:
    answer = await client.get("/metrics", headers=bearer(TOKEN))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_runs_queue_and_requests_are_counted_under_templates(
    client: httpx.AsyncClient,
) -> None:
    before = await samples(client)
    created = await client.post("/v1/runs", json=spec_body(name="secret-name"))
    run_id = created.json()["id"]
    await client.get(f"/v1/runs/{run_id}")
    await client.get("/v1/runs/run_none")
    await client.get("/no/such/path/secret-name")
    await client.request("BREW", "/v1/runs")
    after = await samples(client)
    name = "hillclimb_http_request_duration_seconds_count"

    def grown(*labels: str) -> float:
        key = (name, tuple(sorted(labels)))
        return after.get(key, 0) - before.get(key, 0)

    assert grown("POST", "/v1/runs", "201") == 1
    assert grown("GET", "/v1/runs/{run_id}", "200") == 1
    assert grown("GET", "/v1/runs/{run_id}", "404") == 1
    assert grown("GET", "unmatched", "404") == 1
    assert sum(
        value for (each, labels), value in after.items() if each == name and "other" in labels
    )
    assert after["hillclimb_runs", ("queued",)] == 1
    assert after["hillclimb_runs", ("failed",)] == 0
    assert after["hillclimb_queue_depth", ()] == 1
    assert after["hillclimb_queue_oldest_seconds", ()] >= 0
    assert after["hillclimb_clusters", ("running",)] == 0
    labels = " ".join(label for _, labels in after for label in labels)
    assert run_id not in labels
    assert "secret-name" not in labels
    assert "BREW" not in labels


async def test_the_lag_is_the_silence_of_a_running_attempt(
    client: httpx.AsyncClient, database: Database, stage: Stage
) -> None:
    del database
    assert (await samples(client))["hillclimb_ingest_lag_seconds", ()] == 0
    stage.running()
    assert (await samples(client))["hillclimb_ingest_lag_seconds", ()] > 0


@pytest.mark.parametrize("header", [{}, bearer(KEY), bearer(TOKEN + "x"), bearer("ü")])
async def test_other_tokens_are_refused(client: httpx.AsyncClient, header: dict[str, str]) -> None:
    del client.headers["Authorization"]
    answer = await client.get("/metrics", headers={k: v.encode() for k, v in header.items()})
    assert answer.status_code == 401
    assert "HILLCLIMB_METRICS_TOKEN" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("is_on", "host", "status"),
    [
        (False, "127.0.0.1", 401),
        (True, "127.0.0.1", 200),
        (True, "::1", 200),
        (True, "192.0.2.7", 401),
        (True, "testclient", 401),
    ],
)
async def test_the_own_machine_reads_only_by_the_setting(
    app: FastAPI, settings: Settings, is_on: bool, host: str, status: int
) -> None:
    changed = settings.model_copy(update={"metrics_on_loopback": is_on, "metrics_token": None})
    services = app.state.services
    app.state.services = type(services)(
        **{name: getattr(services, name) for name in services.__slots__} | {"settings": changed}
    )
    transport = httpx.ASGITransport(app, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as visitor:
        assert (await visitor.get("/metrics")).status_code == status


async def test_every_metric_of_the_dashboard_exists(client: httpx.AsyncClient) -> None:
    names = {name for name, _ in await samples(client)}
    names |= {name for name, _ in await samples(client)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for each in expressions for name in re.findall(r"hillclimb_\w+", each)}
    assert len(used) >= 7
    assert used <= names
    boxes = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(boxes)) == len(boxes)


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


async def test_alerts_are_about_series_that_there_are(client: httpx.AsyncClient) -> None:
    """A misspelt name or state would never fire."""
    await samples(client)  # so that a request has been measured
    exposed = (await client.get("/metrics", headers=bearer(TOKEN))).text
    for rule in alerts():
        for name, selector in re.findall(r"(hillclimb_\w+)(?:\{([^}]*)\})?", rule["expr"]):
            assert re.search(rf"^{name}[{{ ]", exposed, re.M), (rule["alert"], name)
            for label, sign, value in re.findall(r'(\w+)(=~?)"([^"]*)"', selector):
                if sign == "=":
                    assert f'{name}{{{label}="{value}"}}' in exposed, (rule["alert"], value)


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    alarms = (DOCS / "runbook.md").read_text().partition("\n## Alarms\n")[2]
    entries = re.findall(r"^### (\w+)$", alarms, re.M)
    assert entries == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
