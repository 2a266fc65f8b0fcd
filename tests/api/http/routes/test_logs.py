"""The log over HTTP, with and without filters."""

import httpx
import pytest
from fastapi import FastAPI

from hillclimb.protocol.rundir import log_segment, run_key
from tests.fixtures.factories import spec_body

AT = "2026-11-21 20:00:00,123"
LINES = (
    f"{AT} INFO trainer.node.head: started the trainer\n"
    f"{AT} WARNING trainer.rollouts.groups.collector: booking is slow\n"
)


@pytest.fixture
async def url(client: httpx.AsyncClient, app: FastAPI) -> str:
    run_id = (await client.post("/v1/runs", json=spec_body())).json()["id"]
    app.state.services.store.put(run_key(run_id, log_segment(1, 1)), LINES.encode())
    return f"/v1/runs/{run_id}/logs?attempt=1"


async def test_a_log_without_a_filter_is_the_whole_text(
    client: httpx.AsyncClient, url: str
) -> None:
    assert (await client.get(url)).json()["text"] == LINES


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("level=WARNING", 1),
        ("component=node", 1),
        ("environment=booking", 1),
        ("text=TRAINER", 2),
        ("text=trainer&level=ERROR", 0),
    ],
)
async def test_a_filter_leaves_the_lines_that_fit(
    client: httpx.AsyncClient, url: str, asked: str, found: int
) -> None:
    page = (await client.get(f"{url}&{asked}")).json()
    assert page["text"].count("\n") == found
    assert not page["has_more"]
    again = (await client.get(f"{url}&{asked}&after={page['next_offset']}")).json()
    assert (again["text"], again["next_offset"]) == ("", page["next_offset"])


@pytest.mark.parametrize("asked", ["level=loud", "text=", "component="])
async def test_a_filter_that_makes_no_sense_is_refused(
    client: httpx.AsyncClient, url: str, asked: str
) -> None:
    assert (await client.get(f"{url}&{asked}")).status_code == 422
