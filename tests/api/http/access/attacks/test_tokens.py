"""With the token of an attempt, or the key of a runner, of one project against another's.

Whoever runs the machines of a project has both: an admin creates keys for runners.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from api.http.requests.limits.entrance import Entrance
from api.http.requests.limits.wrong_keys import WrongKeys
from api.http.requests.permissions import PERMISSIONS, Access
from api.runs import store
from api.scheduling import attempts, runners
from api.tables import Base
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol import events
from hillclimb.protocol.launch import LaunchPlan, RegisterRunner
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.migrated import OTHER_PROJECT
from tests.api.fixtures.story import START, Story, spec
from tests.api.http.access.conftest import Caller, Cast

MARK = "crownjewel"
LINE = gzip.compress(json.dumps({"crownjewel": 1}).encode() + b"\n")


@pytest.fixture
def store_(app: FastAPI) -> BlobStore:
    store: BlobStore = app.state.services.store
    return store


@pytest.fixture
def story(database: Database) -> Story:
    told = Story(database)
    told.prepare()
    return told


@pytest.fixture
def jewel(story: Story, store_: BlobStore) -> str:
    """A run of the owner with files of every kind in the blob store."""
    run_id = story.running(spec(name=MARK))
    story.push(run_id, story.checkpoint(run_id, 40))
    for name in ("manifest.json", "policy/model.safetensors"):
        key = run_key(run_id, "checkpoints/global_step_40/attempt-1", name)
        store_.put(key, json.dumps({MARK: name}).encode())
    for name in ("trajectories/step.jsonl.gz", "prompts.jsonl.gz", "validation.jsonl.gz"):
        store_.put(run_key(run_id, "attempt-1", name), LINE)
    store_.put(run_key(run_id, "attempt-1/logs/000001.log"), MARK.encode())
    return run_id


def thiefs_run(database: Database, run_id: str, project_id: str = OTHER_PROJECT) -> LaunchPlan:
    """Have a runner of the other project claim its run; return what the runner gets."""
    body = RegisterRunner(name=f"thief-{run_id[-8:]}", hostname="thief", slots=1)
    with database.transaction() as session:
        runner_id = runners.register(session, project_id, body, now=START).id
        attempts.schedule(session, store.lock_run(session, run_id), now=START)
    with database.transaction() as session:
        runner = runners.get_runner(session, project_id, runner_id)
        plan = runners.claim(session, runner, ingest_url="http://x", now=START)
    assert plan is not None
    return plan


def rows_of(database: Database, run_id: str) -> dict[str, list[str]]:
    """Return every row about a run."""
    rows: dict[str, list[str]] = {}
    with database.transaction() as session:
        for name, table in Base.metadata.tables.items():
            column = "id" if name == "runs" else "run_id"
            if column in table.columns:
                query = text(f"SELECT to_jsonb(t)::text FROM {name} t WHERE {column} = :r")
                rows[name] = sorted(session.execute(query, {"r": run_id}).scalars())
    return rows


def pushed(number: int, **fields: Any) -> events.Event:
    return events.EVENTS.validate_python({"trainer_seq": number, "at": START, "step": 40, **fields})


def foreign_paths(victim: str) -> tuple[str, ...]:
    """Return ways of naming the victim's folder from one's own."""
    return (
        f"../{victim}",
        f"checkpoints/../../{victim}",
        f"/runs/{victim}",
        f"..%2f{victim}",
        f"..\\{victim}",
        f"./../{victim}",
    )


async def test_no_path_that_a_trainer_reports_leads_into_another_run(
    cast: Cast, story: Story, database: Database, store_: BlobStore, jewel: str
) -> None:
    """Weights, rollouts and prompts are read at the paths that trainers have reported."""
    own = story.submit(spec(name="thief"), project_id=OTHER_PROJECT)
    token = thiefs_run(database, own).attempt_token
    before = rows_of(database, jewel)
    trainer, thief = cast.with_secret(token), cast.stranger("admin")
    outcome = story.evaluation(jewel, 40, {"booking": 1.0}, tasks=1).outcomes[0]
    story.seqs[jewel] -= 1
    number = 0
    for number, way in enumerate(foreign_paths(jewel)):
        step = {"step": number}
        saved = f"{way}/checkpoints/global_step_40/attempt-1"
        row = outcome.model_dump(mode="json") | {
            "rollout_id": f"r{number}",
            "trajectory": f"../{way}/attempt-1/trajectories/step.jsonl.gz",
            "trajectory_line": 0,
        }
        batch = [
            pushed(3 * number + 1, type="checkpoint.saved", path=saved, manifest_sha256="0" * 64,
                   size_bytes=9) .model_copy(update=step),
            pushed(3 * number + 2, type="eval.completed", decoding=f"d{number}", temperature=1.0,
                   n_samples_per_prompt=1, pass_threshold=1.0, metrics={}, outcomes=[row],
                   duration_s=1.0).model_copy(update=step),
            pushed(3 * number + 3, type="prompts.rendered", version="p", max_input_length=9,
                   environments={}, file=f"{way}/attempt-1/prompts.jsonl.gz"),
        ]  # fmt: skip
        body = {"events": [json.loads(each.model_dump_json()) for each in batch]}
        answer = await trainer("POST", "/v1/ingest", json=body)
        assert answer.json()["accepted"] == 3, answer.text
        run = f"/v1/runs/{own}"
        reads = [
            f"{run}/checkpoints/{number}",
            f"{run}/checkpoints/{number}/files/manifest.json",
            f"{run}/checkpoints/{number}/files/policy/model.safetensors",
            f"{run}/checkpoints/{number}/files/policy/model.safetensors?direct=true",
            f"{run}/trajectories/r{number}",
            f"{run}/tokens/r{number}",
            f"{run}/prompts?env=booking",
            f"{run}/exports/rollouts?step={number}",
            f"{run}/exports/skyrl?step={number}",
        ]
        for path in reads:
            answer = await thief("GET", path)
            assert answer.status_code < 500, (path, answer.text)
            content = answer.content
            if path.endswith(f"rollouts?step={number}"):
                content = gzip.decompress(content)
            assert MARK.encode() not in content, (path, way)
    assert number == len(foreign_paths(jewel)) - 1
    assert rows_of(database, jewel) == before
    key = run_key(jewel, "checkpoints/global_step_40/attempt-1", "manifest.json")
    assert MARK.encode() in store_.get(key), "the file is there for its owner"


async def test_the_token_of_an_attempt_opens_its_own_routes_alone(
    cast: Cast, story: Story, database: Database, jewel: str, app: FastAPI
) -> None:
    wrong_keys = WrongKeys(per_minute=1_000_000)
    app.state.entrance = Entrance(database=database, wrong_keys=wrong_keys)
    own = story.submit(spec(name="thief"), project_id=OTHER_PROJECT)
    trainer = cast.with_secret(thiefs_run(database, own).attempt_token)
    before = rows_of(database, jewel)
    for row, access in PERMISSIONS.items():
        method, path = row.split(" ")
        if access in (Access.OPEN, Access.ATTEMPT) or "{" in path.replace("{run_id}", ""):
            continue
        answer = await trainer(method, path.replace("{run_id}", jewel), json={})
        assert answer.status_code in (303, 401), (row, answer.status_code)
    assert rows_of(database, jewel) == before


async def test_a_runner_says_nothing_about_attempts_of_another_projects_runs(
    cast: Cast, story: Story, database: Database, jewel: str
) -> None:
    """In the path, and in the bodies of registration and heartbeat, which list attempts."""
    theirs, runner = story.plans[jewel].attempt_id, cast.stranger("runner")
    before = rows_of(database, jewel)
    registered = await register(runner, attempts=[theirs])
    runner_id = registered.json()["runner_id"]
    beat = await runner("POST", f"/v1/runners/{runner_id}/heartbeat", json={"attempts": [theirs]})
    assert [each["action"] for each in beat.json()["commands"]] == ["kill"], "not ours: let it go"
    end = {"reason": "completed", "message": "", "last_trainer_seq": 0}
    ended = await runner("POST", f"/v1/runners/{runner_id}/attempts/{theirs}/end", json=end)
    assert ended.status_code == 404
    claimed = await runner("POST", f"/v1/runners/{runner_id}/claim")
    assert claimed.status_code == 204, "the owner's waiting runs are not its"
    for foreign in ("heartbeat", "claim"):
        answer = await runner(
            "POST", f"/v1/runners/{story.runner_id}/{foreign}", json={"attempts": []}
        )
        assert answer.status_code == 404
    assert rows_of(database, jewel) == before


async def register(runner: Caller, *, attempts: list[str]) -> httpx.Response:
    """Register under the name that the owner's runner has."""
    body = {"name": "box", "hostname": "box", "slots": 8, "attempts": attempts}
    answer = await runner("POST", "/v1/runners", json=body)
    assert answer.is_success, answer.text
    return answer


async def test_a_wrong_bootstrap_code_says_nothing_about_an_attempt(
    cast: Cast, story: Story, jewel: str
) -> None:
    """The same answer whether the attempt exists: who guesses learns neither code nor id."""
    texts = set()
    for attempt_id in (story.plans[jewel].attempt_id, "att_0" + "0" * 25):
        for rank in (0, 1):
            body = {
                "attempt_id": attempt_id, "code": "hcx_" + "0" * 64, "nonce": "n" * 20,
                "rank": rank, "member": "m" * 20,
            }  # fmt: skip
            answer = await cast.http.post("/v1/attempts/claim", json=body)
            assert answer.status_code == 401, answer.text
            texts.add(answer.json()["detail"])
    assert len(texts) == 1
