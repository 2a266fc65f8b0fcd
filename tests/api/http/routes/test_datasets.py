"""`/v1/datasets` as a client meets it."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.datasets import blobs
from api.settings import Settings
from api.tables import DatasetVersion
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from tests.api.datasets.samples import lines, task, tasks
from tests.api.http.conftest import READ_ONLY, STRANGER, bearer
from tests.fixtures.factories import spec_body

VERSIONS = "/v1/datasets/fleet/versions"
ROWS = tasks(booking=60, github=60)
ELSEWHERE = {"provider": "fleet", "fleet": {"base_url": "http://127.0.0.1:9"}}
"""Where tasks with such keys are played."""


async def create(
    client: httpx.AsyncClient, body: bytes, name: str = "fleet", **options: Any
) -> httpx.Response:
    return await client.post(
        f"/v1/datasets/{name}/versions",
        content=body,
        params={"options": json.dumps(options)} if options else None,
        headers={"Content-Type": "application/json"},
    )


async def created(client: httpx.AsyncClient, body: bytes, **options: Any) -> dict[str, Any]:
    response = await create(client, body, **options)
    assert response.status_code == 201, response.text
    version: dict[str, Any] = response.json()
    return version


async def test_a_file_becomes_a_version_and_again_the_same_one(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    repeated = [*ROWS, ROWS[3], {**ROWS[4], "key": "booking-copy"}]
    response = await create(client, json.dumps({"tasks": repeated}).encode())
    version = response.json()
    assert response.status_code == 201, version
    assert response.headers["Location"] == f"{VERSIONS}/1"
    assert (version["number"], version["parent_id"], version["source"]) == (1, None, "upload")
    assert (version["num_tasks"], version["num_train"], version["num_eval"]) == (121, 109, 12)
    assert (version["envs"]["booking"]["eval"], version["envs"]["github"]["eval"]) == (6, 6)
    assert version["dropped"] == {"duplicates": 1}
    assert [each["key"] for each in version["duplicates"]] == ["booking-003"]
    assert version["copies"][0]["keys"] == ["booking-004", "booking-copy"]
    assert "eval_too_small" in {finding["code"] for finding in version["lint"]}
    stored = DiskStore(tmp_path / "blobs").list("datasets")
    names = [key.rpartition("/")[2] for key in stored]
    assert names == ["lineage.jsonl.gz", "split.jsonl.gz", "tasks.jsonl.gz"]
    assert (await client.get(f"{VERSIONS}/latest")).json() == version

    shuffled = gzip.compress(lines(repeated[:-2][::-1] + repeated[-2:]))
    again = await create(client, shuffled)
    assert (again.status_code, again.json()) == (200, version)
    assert len(DiskStore(tmp_path / "blobs").list("datasets")) == 3


async def test_eval_tasks_stay_eval_and_the_rest_is_told_by_a_diff(
    client: httpx.AsyncClient,
) -> None:
    first = await created(client, lines(ROWS))
    more = [*ROWS[1:], *tasks(reddit=50), {**ROWS[0], "prompt": "Something else."}]
    second = await created(client, lines(more), split={"policy": "rank", "eval_ratio": 0.2})
    assert (second["number"], second["parent_id"]) == (2, first["id"])

    async def evals(number: int) -> set[str]:
        page = await client.get(f"{VERSIONS}/{number}/tasks?split=eval&limit=200")
        return {row["key"] for row in page.json()["data"]}

    kept = await evals(1)
    assert len(kept) == 12
    assert kept < await evals(2)
    found = (await client.get(f"{VERSIONS}/2/diff", params={"base": 1})).json()
    assert found["counts"]["added"] == 50
    assert found["changed"] == [{"key": "booking-000", "env_key": "booking", "fields": ["prompt"]}]
    assert {move["after"] for move in found["moved"]} <= {"eval"}
    listed = (await client.get(VERSIONS, params={"limit": 1})).json()
    assert ([each["number"] for each in listed["data"]], listed["has_more"]) == ([2], True)
    (dataset,) = (await client.get("/v1/datasets")).json()["data"]
    assert (dataset["name"], dataset["newest"]["number"]) == ("fleet", 2)


async def test_a_named_parent_makes_another_version_of_the_same_tasks(
    client: httpx.AsyncClient,
) -> None:
    """What the parent evaluated on is remembered, even by a version with none of its tasks."""
    other = tasks(reddit=60)
    assert (await create(client, lines(other), "other")).status_code == 201
    alone = await created(client, lines(ROWS))
    with_parent = await created(client, lines(ROWS), parent="other@1")
    assert (alone["number"], with_parent["number"]) == (1, 2)
    again = await create(client, lines(ROWS), parent="other@1")
    assert (again.status_code, again.json()["number"]) == (200, 2)

    page = await client.get("/v1/datasets/other/versions/1/tasks?split=eval&limit=200")
    evaluated = {row["key"] for row in page.json()["data"]}
    assert len(evaluated) == 6
    await created(client, lines([*ROWS, *other]), split={"policy": "rank", "salt": 7})
    page = await client.get(f"{VERSIONS}/latest/tasks?split=train&limit=200")
    assert not evaluated & {row["key"] for row in page.json()["data"]}


async def test_tasks_are_read_page_by_page_one_by_one_and_as_files(
    client: httpx.AsyncClient,
) -> None:
    version = await created(client, lines(ROWS))
    path = f"{VERSIONS}/{version['number']}"
    seen: list[str] = []
    params: dict[str, str | int] = {"limit": 25, "env": "github", "split": "train"}
    while True:
        page = (await client.get(f"{path}/tasks", params=params)).json()
        seen += [row["key"] for row in page["data"]]
        if not page["has_more"]:
            break
        params["cursor"] = page["next_cursor"]
    assert len(seen) == version["envs"]["github"]["train"] == 54
    assert seen == sorted(set(seen))
    refused = await client.get(f"{path}/tasks", params={"cursor": params["cursor"], "env": "x"})
    assert (refused.status_code, refused.json()["code"]) == (400, "cursor_rejected")
    found = (await client.get(f"{path}/tasks", params={"search": "B-007"})).json()["data"]
    assert [row["key"] for row in found] == ["github-007"]
    one = (await client.get(f"{path}/tasks/github-007")).json()
    assert one == found[0]
    assert one["prompt"] == "Do thing 7 in github."
    missing = await client.get(f"{path}/tasks/github-707")
    assert (missing.status_code, missing.json()["code"]) == (404, "task_not_found")
    file = await client.get(f"{path}/files/split")
    places = [json.loads(line) for line in gzip.decompress(file.content).splitlines()]
    assert len(places) == 120
    assert sum(place["split"] == "eval" for place in places) == version["num_eval"]


async def test_mistakes_are_named_by_row_and_field_and_nothing_is_stored(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    bad = [task("booking", 0, difficulty=9), task("booking", 1, prompt=" "), "no task"]
    refused = await create(client, lines([*ROWS, *bad]))  # type: ignore[list-item]
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "invalid_dataset")
    assert [each["pointer"] for each in problem["errors"]] == [
        "/rows/121/difficulty",
        "/rows/122/prompt",
        "/rows/123",
    ]
    assert "row 121 (booking-000), field difficulty: 9 must be 1" in problem["detail"]
    many = await create(client, lines([{"key": str(n)} for n in range(200)]))
    assert len(many.json()["errors"]) == 50
    assert "more)" in many.json()["detail"]
    refused = await create(client, gzip.compress(lines(ROWS))[:-20])
    assert "damaged or truncated" in refused.json()["detail"]
    assert (await client.get("/v1/datasets")).json()["data"] == []
    assert DiskStore(tmp_path / "blobs").list("datasets") == ()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"split": {"policy": "rank", "eval_ration": 0.1}},
            "/options/split/eval_ration: unknown key 'eval_ration'; did you mean 'eval_ratio'?",
        ),
        ({"split": {"policy": "dice"}}, "expected tags: 'rank', 'md5_threshold', 'published'"),
        ({"splits": {}}, "/options/splits: unknown key 'splits'; did you mean 'split'?"),
        ({"filters": {"env_keys": []}}, "env_keys is empty"),
        ({"source": "fleet"}, "neither an address such as s3://BUCKET/PATH nor a version"),
        ({"parent": "fleet"}, "'fleet' is not a version: write NAME@3"),
    ],
)
async def test_wrong_options_are_refused_before_the_file_is_read(
    client: httpx.AsyncClient, options: dict[str, Any], sentence: str
) -> None:
    refused = await create(client, b"never read", **options)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_dataset")
    assert sentence in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"].startswith("/options")


async def test_a_published_split_comes_in_a_form(client: httpx.AsyncClient) -> None:
    splits = {row["key"]: "eval" if row["key"].endswith("7") else "train" for row in ROWS[:100]}
    options = json.dumps({"split": {"policy": "published", "splits": splits}}).encode()
    form = {"options": ("options.json", options), "tasks": ("tasks.jsonl", lines(ROWS))}
    response = await client.post(VERSIONS, files=form)
    version = response.json()
    assert response.status_code == 201, version
    assert (version["num_train"], version["num_eval"]) == (90, 10)
    assert version["excluded"] == {"split: the published split does not name it": 20}
    assert version["options"]["split"]["num_tasks"] == 100
    for form, sentence in (
        ({"task": ("x", b"[]")}, "The form has a part 'task'"),
        ({"options": ("x", b"{}")}, "The request has no tasks: send them"),
        ({"options": (None, b"{}")}, "The request has no tasks: send them"),
        ({"tasks": (None, b"[]")}, "The part `tasks` is text: send it as a file."),
    ):
        refused = await client.post(VERSIONS, files=form)
        assert sentence in refused.json()["detail"]


@pytest.mark.parametrize(
    "table",
    [
        {"train": ["booking-000", "booking-001"], "val": ["github-000"]},
        {"booking-000": "train", "booking-001": "training", "github-000": "test"},
        [
            {"key": "booking-000", "split": "train"},
            {"task_key": "booking-001", "data_split": "train"},
            {"key": "github-000", "split": "eval"},
            {"key": "github-001", "split": "excluded"},
        ],
    ],
)
async def test_a_published_split_comes_in_every_form_that_the_page_names(
    client: httpx.AsyncClient, table: Any
) -> None:
    split = {"policy": "published", "splits": table}
    version = await created(client, lines(ROWS), split=split)
    assert (version["num_train"], version["num_eval"]) == (2, 1)
    assert version["options"]["split"]["num_tasks"] == 3
    again = await create(client, lines(ROWS), split={"policy": "published", "splits": {"a": 3}})
    assert (again.status_code, again.json()["code"]) == (422, "invalid_dataset")
    assert "/options/split: a published split gives each task key" in again.json()["detail"]


async def test_what_is_excluded_is_left_out_of_the_next_version_with_its_reason(
    client: httpx.AsyncClient,
) -> None:
    await created(client, lines(ROWS))
    path = "/v1/datasets/fleet/exclusions"
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    drafts = [
        {"scope": "task", "key": "booking-001", "reason": "no date", "source": "validation"},
        {"scope": "env", "key": "github", "reason": "it answers 502", "expires_at": later},
    ]
    for _ in range(2):
        added = (await client.post(path, json={"exclusions": drafts})).json()["data"]
    assert [each["key"] for each in added] == ["github", "booking-001"]
    over = {**drafts[1], "expires_at": "2026-01-01T00:00:00Z"}
    refused = await client.post(path, json={"exclusions": [over]})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_dataset")
    assert "which is in the past: set a later end" in refused.json()["detail"]
    second = await created(client, b"", source="fleet@1")
    assert second["excluded"] == {"validation: no date": 1}
    assert second["envs"]["github"]["excluded"] == 0, "a quarantine ends, a version does not"
    assert (second["source"], second["parent_id"] is not None) == ("fleet@1", True)

    spec = spec_body(data={"dataset": "fleet@2"}, environment=ELSEWHERE)
    run = (await client.post("/v1/runs", json=spec)).json()
    assert run["spec"]["data"]["env_keys"] == ["booking"]
    assert run["spec"]["data"]["dataset"]["id"] == second["id"]
    events = (await client.get(f"/v1/runs/{run['id']}/events")).json()["data"]
    assert [event["type"] for event in events] == ["run.created", "run.warning"]
    assert events[1]["data"]["message"].startswith("github is left out: it is in quarantine")
    plan = (await client.post("/v1/runs/plan", json=spec)).json()
    assert list(plan["dataset"]["envs"]) == ["booking"]
    refused = await client.post("/v1/runs", json=spec_body(data={"dataset": "flet"}))
    assert (refused.status_code, refused.json()["code"]) == (422, "dataset_unusable")

    gone = await client.delete(f"{path}/{added[0]['id']}")
    assert gone.json()["removed"] is True
    again = await client.delete(f"{path}/{added[0]['id']}")
    assert (again.status_code, again.json()["code"]) == (404, "exclusion_not_found")
    left = (await client.get(path)).json()["data"]
    assert [each["key"] for each in left] == ["booking-001"]


async def test_a_key_makes_a_creation_repeatable_and_races_make_one_version(
    client: httpx.AsyncClient, database: Database
) -> None:
    headers = {"Idempotency-Key": "once"}
    body = lines(tasks(booking=20))
    first, other = await asyncio.gather(
        *(client.post(VERSIONS, content=body, headers=headers) for _ in range(2))
    )
    assert {first.status_code, other.status_code} == {201}
    assert first.json() == other.json()
    replayed = [answer.headers.get("Idempotent-Replayed") for answer in (first, other)]
    assert sorted(replayed, key=str) == [None, "true"]
    refused = await client.post(VERSIONS, content=body + b"\n", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_key_reused")
    with database.transaction() as session:
        assert session.query(DatasetVersion).count() == 1


async def test_a_source_is_read_only_where_the_operator_allows(
    client: httpx.AsyncClient, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "all.json").write_bytes(lines(tasks(booking=30)))
    (tmp_path / "secret.json").write_bytes(lines(tasks(booking=30)))
    allowed = f"file://{tmp_path}/exports"
    object.__setattr__(settings, "dataset_sources", f"s3://bucket/a {allowed}")
    version = await created(client, b"", source=f"{allowed}/all.json")
    assert version["source"] == f"{allowed}/all.json"
    for source, sentence in (
        (f"file://{tmp_path}/secret.json", "is not among the sources"),
        (f"{allowed}/../secret.json", "is not the address of a file"),
        (f"{allowed}x/all.json", "is not among the sources"),
        ("s3://bucket/ab/all.json", f"may read (s3://bucket/a, {allowed})"),
        ("s3://bucket/a/x?endpoint_url=http://evil", "without a query"),
        ("http://metadata/latest", "write s3://BUCKET/PATH"),
        (f"{allowed}/none.json", "There is no file"),
    ):
        refused = await create(client, b"", source=source)
        assert (refused.status_code, refused.json()["code"]) == (422, "source_refused")
        assert sentence in refused.json()["detail"]


async def test_an_environment_is_found_by_its_key_as_the_platform_spells_it(
    client: httpx.AsyncClient,
) -> None:
    rows = [{**row, "env_key": "Forums_v2.1-homes"} for row in tasks(forums=60)]
    made = await created(client, lines([*rows, *tasks(github=60)]))
    assert set(made["envs"]) == {"Forums_v2.1-homes", "github"}
    params = {"env": "Forums_v2.1-homes", "limit": 200}
    found = (await client.get(f"{VERSIONS}/1/tasks", params=params)).json()["data"]
    assert [each["key"] for each in found] == [row["key"] for row in rows]
    data = {"dataset": "fleet@1", "env_keys": ["Forums_v2.1-homes"]}
    spec = spec_body(environment=ELSEWHERE, data=data)
    assert (await client.post("/v1/runs", json=spec)).status_code == 201


async def test_before_the_first_version_a_refusal_says_where_exclusions_go(
    client: httpx.AsyncClient,
) -> None:
    draft = {"scope": "env", "key": "dropbox", "reason": "instances time out"}
    body = {"exclusions": [draft, {**draft, "key": "fira"}]}
    refused = await client.post("/v1/datasets/fleet/exclusions", json=body)
    assert (refused.status_code, refused.json()["code"]) == (404, "dataset_not_found")
    sentence = refused.json()["detail"]
    assert "hillclimb datasets create fleet FILE --set 'exclusions=[…]'" in sentence
    example = json.loads(sentence[sentence.index("[{") : sentence.index("}]") + 2])
    assert example == [draft], "it may be pasted"
    made = await created(client, lines(tasks(dropbox=5, github=60)), exclusions=example)
    assert made["excluded"] == {"user: instances time out": 5}
    kept = (await client.get("/v1/datasets/fleet/exclusions")).json()["data"]
    assert [each["key"] for each in kept] == ["dropbox"]


async def test_rows_without_a_prompt_are_refused_or_left_out_with_their_keys(
    client: httpx.AsyncClient,
) -> None:
    rows = tasks(booking=60)
    blank = [{**row, "prompt": ""} for row in rows[:3]]
    refused = await create(client, lines([*blank, *rows[3:]]))
    assert refused.status_code == 422
    assert [each["pointer"] for each in refused.json()["errors"]] == [
        f"/rows/{number}/prompt" for number in (1, 2, 3)
    ]
    assert "filters.empty_prompts: drop" in refused.json()["errors"][0]["message"]
    made = await created(client, lines([*blank, *rows[3:]]), filters={"empty_prompts": "drop"})
    assert made["dropped"] == {"empty_prompts": 3}
    assert made["empty_prompts"] == [row["key"] for row in blank]
    assert (made["num_read"], made["num_tasks"]) == (60, 57)


async def test_lint_again_repeats_what_was_found_at_the_making(client: httpx.AsyncClient) -> None:
    """Also with more repeated rows than the version lists: their keys are not stored again."""
    rows = tasks(booking=1200, github=60)
    made = await created(
        client, lines([*rows, *rows[:1100]]), filters={"env_keys": ["booking", "x"]}
    )
    assert (made["num_duplicates"], len(made["duplicates"])) == (1100, 1000)
    found = (await client.post(f"{VERSIONS}/1/lint", json={})).json()["data"]
    assert found == made["lint"]
    codes = {each["code"]: each["message"] for each in found}
    assert codes["duplicate_key"] == "1100 rows repeat 1100 keys of earlier rows"
    assert "option_names_nothing" in codes


async def test_lint_again_with_the_tokens_of_the_tools(client: httpx.AsyncClient) -> None:
    await created(client, lines(ROWS))
    options = {"tool_tokens": {"github": 26_000}, "max_input_length": 24_000}
    found = (await client.post(f"{VERSIONS}/1/lint", json=options)).json()["data"]
    assert (found[0]["code"], found[0]["env_key"]) == ("tools_over_budget", "github")
    refused = await client.post(f"{VERSIONS}/1/lint", json={"max_input": 3})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_other_projects_see_nothing_and_readers_change_nothing(
    client: httpx.AsyncClient,
) -> None:
    await created(client, lines(tasks(booking=20)))
    reads = ("", "/versions", "/versions/1", "/versions/1/tasks", "/versions/1/tasks/booking-001")
    reads += ("/versions/1/files/tasks", "/versions/1/diff?base=1", "/exclusions")
    for path in reads:
        answer = await client.get(f"/v1/datasets/fleet{path}", headers=bearer(STRANGER))
        assert (answer.status_code, answer.json()["code"]) == (404, "dataset_not_found"), path
    assert (await client.get("/v1/datasets", headers=bearer(STRANGER))).json()["data"] == []
    theirs = await client.post(
        VERSIONS, headers=bearer(STRANGER), params={"options": '{"source": "fleet@1"}'}
    )
    assert (theirs.status_code, theirs.json()["code"]) == (404, "dataset_not_found")
    for path in ("/versions", "/exclusions"):
        answer = await client.post(
            f"/v1/datasets/fleet{path}", json={"exclusions": []}, headers=bearer(READ_ONLY)
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    unknown = await client.get(f"{VERSIONS}/2")
    assert "has no version 2; it has version 1 alone" in unknown.json()["detail"]


async def test_an_upload_has_a_limit_of_its_own(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    big = task("booking", 0, prompt="x" * 1_500_000)
    await created(client, lines([big, *tasks(github=20)]))
    said = {"Content-Length": str(settings.dataset_max_mb * 1_000_000 + 1)}
    refused = await client.post(VERSIONS, content=b"x", headers=said)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    drafts = [{"scope": "task", "key": f"t{n}", "reason": "r" * 1000} for n in range(2000)]
    added = await client.post("/v1/datasets/fleet/exclusions", json={"exclusions": drafts})
    assert len(added.json()["data"]) == 2000


async def test_files_without_a_row_are_swept(
    client: httpx.AsyncClient, database: Database, tmp_path: Path
) -> None:
    version = await created(client, lines(tasks(booking=20)))
    store = DiskStore(tmp_path / "blobs")
    orphan = "datasets/dsv_01jzzzzzzz0000000000000000/tasks.jsonl.gz"
    store.put(orphan, b"left behind")
    now = datetime.now(UTC)
    assert blobs.sweep_orphans(database, store, now=now + timedelta(hours=2)) == 1
    assert {key.split("/")[1] for key in store.list("datasets")} == {version["id"]}
    store.put(f"datasets/dsv_{version['id'][4:-1]}0/tasks.jsonl.gz", b"being made now")
    assert blobs.sweep_orphans(database, store, now=now) == 0
