"""Tags, links and notes on runs and dataset versions."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.api.http.conftest import READ_ONLY, STRANGER, bearer
from tests.api.http.routes.test_runs import create


async def test_the_tags_of_a_spec_find_the_run_and_change_without_the_spec(
    client: httpx.AsyncClient,
) -> None:
    run = await create(client, tags=["v0.2.4", "lr"])
    await create(client, tags=["v0.2.4"])
    await create(client)
    assert (run["tags"], run["links"], run["note"]) == (["lr", "v0.2.4"], {}, None)

    async def found(*tags: str) -> int:
        page = (await client.get("/v1/runs", params={"tag": list(tags)})).json()
        return len(page["data"])

    assert [await found(), await found("v0.2.4"), await found("v0.2.4", "lr")] == [3, 2, 1]
    assert await found("v0.2") == 0, "a tag is matched as a whole"
    path = f"/v1/runs/{run['id']}"
    changes = {"add_tags": ["kept"], "remove_tags": ["lr", "never"]}
    changed = (await client.patch(path, json=changes)).json()
    assert (changed["tags"], changed["spec"]["tags"]) == (["kept", "v0.2.4"], ["v0.2.4", "lr"])
    assert [await found("lr"), await found("kept")] == [0, 1]


async def test_links_and_note_change_one_by_one(client: httpx.AsyncClient) -> None:
    path = f"/v1/runs/{(await create(client))['id']}"
    links = {"pr": "https://github.com/o/r/pull/12", "wandb": "https://wandb.ai/thefleet/x"}
    await client.patch(path, json={"links": links, "note": "First."})
    await client.patch(path, json={"links": {"pr": None}})
    run = (await client.get(path)).json()
    assert (run["links"], run["note"]) == ({"wandb": links["wandb"]}, "First.")
    assert (await client.patch(path, json={"note": ""})).json()["note"] is None


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"add_tags": ["a b"]}, "/add_tags/0"),
        ({"add_tags": ["x"], "remove_tags": ["x"]}, ""),
        ({"links": {"pr": "javascript:alert(1)"}}, "/links/pr"),
        ({"links": {"pr": "https://me:secret@example.com/"}}, "/links/pr"),
        ({"note": "x" * 20_001}, "/note"),
        ({"tags": ["x"]}, "/tags"),
    ],
)
async def test_an_annotation_that_cannot_be_stored_is_refused(
    client: httpx.AsyncClient, changes: dict[str, object], pointer: str
) -> None:
    path = f"/v1/runs/{(await create(client))['id']}"
    refused = await client.patch(path, json=changes)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["pointer"].startswith(pointer)


async def test_more_tags_or_links_than_a_run_may_have_are_refused(
    client: httpx.AsyncClient,
) -> None:
    path = f"/v1/runs/{(await create(client))['id']}"
    for name, first, more in (
        ("add_tags", [f"t{n}" for n in range(32)], ["one-more"]),
        (
            "links",
            {f"l{n}": "https://example.com/" for n in range(16)},
            {"more": "https://example.com/"},
        ),
    ):
        assert (await client.patch(path, json={name: first})).status_code == 200
        refused = await client.patch(path, json={name: more})
        assert (refused.status_code, refused.json()["code"]) == (422, "too_many_annotations")


async def test_only_writers_of_the_project_annotate(client: httpx.AsyncClient) -> None:
    path = f"/v1/runs/{(await create(client))['id']}"
    for key, status in ((READ_ONLY, 403), (STRANGER, 404)):
        refused = await client.patch(path, json={"note": "x"}, headers=bearer(key))
        assert refused.status_code == status
    assert (await client.get("/v1/runs", params={"tag": "a\0"})).status_code == 422


async def test_a_version_keeps_its_identity_when_its_note_changes(
    client: httpx.AsyncClient,
) -> None:
    rows = [{"key": f"t{n}", "prompt": f"Do {n}.", "env_key": "github"} for n in range(20)]
    made = (
        await client.post("/v1/datasets/mine/versions", content=json.dumps(rows).encode())
    ).json()
    path = "/v1/datasets/mine/versions/1"
    noted = (await client.patch(path, json={"note": "Without the flaky ones."})).json()
    assert noted == made | {"note": "Without the flaky ones."}
    page = (await client.get("/v1/datasets/mine/versions")).json()
    assert page["data"][0]["note"] == "Without the flaky ones."
    assert (await client.patch(path, json={"note": ""})).json()["note"] is None
    missing = await client.patch("/v1/datasets/mine/versions/9", json={"note": "x"})
    assert missing.status_code == 404
    stranger = await client.patch(path, json={"note": "x"}, headers=bearer(STRANGER))
    assert stranger.status_code == 404
