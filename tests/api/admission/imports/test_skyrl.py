"""A dump of SkyRL becomes a run that ended, on which everything that reads runs works."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, select

from api.admission.imports.errors import ImportsBusy
from api.http.requests.thread_pools import BoundedPool, DatasetPools
from api.runs.stored_spec import spec_of
from api.tables import Attempt, OutboxMessage, OutcomeRecord, Run, RunEvent
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.outcomes import OutcomeRow
from tests.api.admission.imports.conftest import Import
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, rollout, spec
from tests.fixtures.skyrl import DUMP, ENVS, RUN_NAME, STEPS, edited, files, row, rows, zipped


def read(served: Served, path: str, **params: object) -> Any:
    with served.client() as client:
        response = client.get(path, params={name: str(value) for name, value in params.items()})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_run_has_ended_and_nothing_is_left_to_do(
    served: Served, story: Story, imported: str
) -> None:
    body = read(served, f"/v1/runs/{imported}")
    assert (body["name"], body["status"]) == (RUN_NAME, "succeeded")
    assert body["origin"]["kind"] == "skyrl"
    assert body["origin"]["source"] == RUN_NAME
    assert body["attempts"] == []
    assert body["end_reason"]["message"].startswith(f"Imported from {RUN_NAME}")
    with story.database.transaction() as session:
        run = session.get_one(Run, imported)
        assert (run.due_at, run.deadline_at, run.lease_until) == (None, None, None)
        assert session.scalar(select(func.count()).select_from(Attempt)) == 0
        assert session.scalar(select(func.count()).select_from(OutboxMessage)) == 0
        assert spec_of(run).data.env_keys == ENVS


def test_events_are_numbered_without_gaps(story: Story, imported: str) -> None:
    with story.database.transaction() as session:
        query = select(RunEvent).where(RunEvent.run_id == imported).order_by(RunEvent.seq)
        stored = list(session.scalars(query))
        last = session.get_one(Run, imported).last_seq
    assert [event.type for event in stored] == [
        "run.imported", "eval.completed", "eval.completed",
    ]  # fmt: skip
    assert [event.seq for event in stored] == list(range(1, last + 1))
    assert [event.trainer_seq for event in stored] == [None, 1, 2]


def test_every_rollout_has_the_score_of_its_row(
    served: Served, story: Story, imported: str
) -> None:
    with story.database.transaction() as session:
        outcomes = list(session.scalars(select(OutcomeRecord)))
    assert len(outcomes) == 192
    for outcome in outcomes:
        path = f"global_step_{outcome.step}/{outcome.env_key}.jsonl"
        original = rows(path)[outcome.trajectory_line]
        assert outcome.score == sum(original["score"])
        assert outcome.task_key == original["env_extras"]["task_key"]
    counts = Counter((o.step, o.env_key, o.task_key) for o in outcomes)
    assert set(counts.values()) == {3}
    evals = read(served, f"/v1/runs/{imported}/evals")["data"]
    assert [(each["step"], each["decoding"]) for each in evals] == [(0, "greedy"), (80, "greedy")]


def test_metrics_are_those_of_the_dump(served: Served, imported: str) -> None:
    series = read(served, f"/v1/runs/{imported}/metrics", names="eval/*")["data"]
    stored = {(each["name"], p["step"]): p["value"] for each in series for p in each["points"]}
    for step in STEPS:
        metrics = json.loads(files()[f"global_step_{step}/aggregated_results.jsonl"])
        assert {name: stored[name, step] for name in metrics} == metrics


def test_verdicts_compare_and_patterns_work_between_two_steps(
    served: Served, imported: str
) -> None:
    report = read(served, f"/v1/runs/{imported}/evals/report")
    assert (report["before_step"], report["after_step"]) == STEPS
    assert report["num_candidates"] == 1
    assert set(report["environments"]) == set(ENVS)
    at_three = read(served, f"/v1/runs/{imported}/evals/report", k=3)
    github = at_three["environments"]["github"]["greedy"]
    assert (github["before"], github["after"]) == (0.5, 1.0)  # eval/github/pass_at_3 of the dump
    comparison = read(served, "/v1/compare", a=f"{imported}@0", b=f"{imported}@80")
    assert comparison["decodings"]["greedy"]["all"]["n"] == 32
    patterns = read(served, f"/v1/runs/{imported}/patterns")
    assert patterns["num_searched_before"] == 96
    by_name = {each["name"]: each for each in patterns["data"]}
    assert by_name["cannot_signal_done"]["num_before"] == 24
    assert by_name["cannot_signal_done"]["num_after"] == 5


def test_a_threshold_rescores_and_a_signal_report_says_that_there_are_no_steps(
    served: Served, imported: str
) -> None:
    rescored = read(served, f"/v1/runs/{imported}/evals", threshold=0.5)["data"]
    assert {each["pass_threshold"] for each in rescored} == {0.5}
    assert read(served, f"/v1/runs/{imported}/signal")["first_step"] is None


def test_a_trajectory_has_the_turns_of_the_response(served: Served, imported: str) -> None:
    page = read(served, f"/v1/runs/{imported}/trajectories", env="github", step=0, limit=200)
    first = next(each for each in page["data"] if each["trajectory_line"] == 0)
    full = read(served, f"/v1/runs/{imported}/trajectories/{first['rollout_id']}")
    turns = full["trajectory"]["turns"]
    assert turns[0]["tool_name"] == "list_issues"
    assert turns[0]["tool_arguments"] == {"repo": "unknown"}
    assert turns[0]["observation"] == "[]"
    assert turns[-1]["response"] == "The task is complete."
    assert first["num_turns"] == len(turns)
    assert "<|im_start|>" not in full["trajectory"]["task"]["prompt"]


def test_an_own_run_is_compared_with_the_dump(served: Served, story: Story, imported: str) -> None:
    run_id = story.running(spec("own", env_keys=("github",)))
    keys = sorted({each["env_extras"]["task_key"] for each in rows("global_step_0/github.jsonl")})
    outcomes = tuple(_own(key, number) for number, key in enumerate(keys))
    evaluation = story.evaluation(run_id, 40, {"github": 1.0}, decoding="greedy", tasks=1)
    story.push(run_id, evaluation.model_copy(update={"outcomes": outcomes}))
    comparison = read(served, "/v1/compare", a=f"{imported}@0", b=f"{run_id}@40")
    github = comparison["decodings"]["greedy"]["environments"]["github"]
    assert (github["n"], github["after"]) == (len(keys), 1.0)
    assert comparison["decodings"]["greedy"]["num_tasks_of_a_alone"] == 24


def _own(task_key: str, number: int) -> OutcomeRow:
    made = rollout("github", number, passed=True, decoding="greedy", step=40)
    return made.model_copy(
        update={"task_key": task_key, "template": "", "held_out_template": False}
    )


def test_what_nobody_knows_is_neither_compared_nor_counted(
    served: Served, story: Story, imported: str
) -> None:
    run_id = story.running(spec("own", env_keys=("github",)))
    story.push(run_id, story.evaluation(run_id, 40, {"github": 1.0}, decoding="greedy"))
    comparison = read(served, "/v1/compare", a=imported, b=run_id)
    assert comparison["a"]["spent"] is None
    sections = {each["pointer"].split("/")[1] for each in comparison["config_diff"]}
    assert sections == {"model", "data", "eval"}
    with served.client() as client:
        equal = client.get("/v1/compare", params={"a": imported, "b": run_id, "at": "tokens"})
    assert (equal.status_code, equal.json()["code"]) == (404, "no_ledger")


def test_the_page_says_that_it_was_imported(served: Served, imported: str) -> None:
    with served.browser() as browser:
        browser.post("/login", data={"key": served.key, "next": "/"})
        page, runs = browser.get(f"/runs/{imported}"), browser.get("/")
    assert page.status_code == runs.status_code == 200
    assert f"Imported from {RUN_NAME}: this service did not run it." in page.text
    assert "finished every step" not in page.text
    assert RUN_NAME in runs.text


def test_a_capsule_of_the_run_can_be_exported(served: Served, imported: str) -> None:
    with served.client() as client:
        response = client.get(f"/v1/runs/{imported}/capsule")
    assert response.status_code == 200
    assert response.content.startswith(b"PK")


def test_the_same_dump_is_adopted_and_another_project_has_its_own(
    served: Served, bring: Import, imported: str
) -> None:
    again = bring()
    assert (again.status_code, again.json()["id"]) == (200, imported)
    renamed = bring(source="another-name")
    assert (renamed.status_code, renamed.json()["id"]) == (200, imported)
    packed_anew = bring(zipped(dict(reversed(files().items()))))
    assert packed_anew.json()["id"] == imported
    other = bring(decoding="sampled", temperature=1.0)
    assert (other.status_code, other.json()["id"] == imported) == (201, False)
    stranger = bring(key=served.stranger_key)
    assert (stranger.status_code, stranger.json()["id"] == imported) == (201, False)
    with served.client(served.stranger_key) as client:
        assert client.get(f"/v1/runs/{imported}").status_code == 404


def test_imports_at_once_store_one_run_and_its_files_once(
    bring: Import, story: Story, blobs: DiskStore
) -> None:
    with ThreadPoolExecutor(4) as pool:
        ids = {response.json()["id"] for response in pool.map(lambda _: bring(), range(4))}
    assert len(ids) == 1
    with story.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 1
    assert {key.split("/")[1] for key in blobs.list("runs")} == ids


@pytest.mark.parametrize(
    ("action", "word"), [("resume", "resumed"), ("pause", "paused"), ("cancel", "cancelled")]
)
def test_nothing_acts_on_an_imported_run(
    served: Served, imported: str, action: str, word: str
) -> None:
    with served.client() as client:
        response = client.post(f"/v1/runs/{imported}/{action}")
    assert (response.status_code, response.json()["code"]) == (409, "run_imported")
    assert f"cannot be {word}" in response.json()["detail"]


def test_neither_its_spec_nor_its_checkpoints_can_be_run(served: Served, imported: str) -> None:
    body = read(served, f"/v1/runs/{imported}")["spec"]
    source = {"run_id": imported, "step": 80, "attempt": 1}
    forked = body | {
        "lineage": {"resumed_from": source},
        "model": {"source": "builtin:tiny-qwen3-a"},
    }
    with served.client() as client:
        again, evaluated = (client.post("/v1/runs", json=each) for each in (body, forked))
    assert again.status_code == 422
    assert "weights are not here" in again.json()["detail"]
    assert (evaluated.status_code, evaluated.json()["code"]) == (409, "run_imported")


def test_a_planned_last_step_is_no_choice(served: Served, bring: Import) -> None:
    content = files() | {
        f"global_step_40/{name.split('/')[1]}": data
        for name, data in files().items()
        if name.startswith("global_step_80")
    }
    unknown, planned = (
        bring(zipped(content), **options).json()["id"] for options in ({}, {"total_steps": 80})
    )
    reports = [read(served, f"/v1/runs/{run}/evals/report") for run in (unknown, planned)]
    assert [report["num_candidates"] for report in reports] == [2, 1]


def test_metrics_that_are_not_those_of_the_rollouts_are_a_warning(
    bring: Import, story: Story
) -> None:
    path = "global_step_0/aggregated_results.jsonl"
    metrics = json.loads(files()[path]) | {"eval/github/pass_at_3": 0.9}
    response = bring(zipped(files() | {path: json.dumps(metrics).encode()}))
    assert response.status_code == 201
    with story.database.transaction() as session:
        warning = session.scalars(select(RunEvent).where(RunEvent.type == "run.warning")).one()
    assert "eval/github/pass_at_3" in warning.data["message"]


def test_lost_rollouts_have_no_grade(served: Served, bring: Import) -> None:
    lines = b"".join(
        row(score=[0.0], output_response="<|im_end|>", stop_reason=reason)
        for reason in ("env_init_failed", "timeout")
    )
    run_id = bring(zipped({"global_step_0/github.jsonl": lines + row()})).json()["id"]
    page = read(served, f"/v1/runs/{run_id}/trajectories")["data"]
    assert {(each["status"], each["score"]) for each in page} == {
        ("infra_error", None), ("ungraded", None), ("graded", 1.0),
    }  # fmt: skip
    overall = read(served, f"/v1/runs/{run_id}/evals")["data"][0]["all"]
    assert overall["pass_at_1"] == 1.0
    assert overall["coverage"] == pytest.approx(1 / 3)


def refused(response: httpx.Response, *words: str) -> None:
    assert response.status_code == 422, response.text
    body = response.json()
    assert body["code"] == "invalid_import"
    assert all(word in body["detail"] for word in words), body["detail"]


GITHUB = "global_step_0/github.jsonl"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"../../etc/passwd": b"x"}, ("passwd", "no file of a dump")),
        ({"global_step_0/../github.jsonl": row()}, ("no file of a dump",)),
        ({"global_step_0/.jsonl": row()}, ("no file of a dump",)),
        ({"global_step_0/1github.jsonl": row(data_source="1github")}, ("names no environment",)),
        ({GITHUB: row(), "global_step_0_evals/github.jsonl": row()}, ("there twice",)),
        ({GITHUB: row() + b'{"input_prompt": "cut'}, ("line 2", "not JSON, or cut off")),
        ({GITHUB: row() + b"\n"}, ("line 2", "is empty")),
        ({GITHUB: b"[]\n"}, ("line 1",)),
        ({GITHUB: b"\xff\xfe\n"}, ("line 1",)),
        ({GITHUB: b"[" * 100_000}, ("line 1",)),
        ({GITHUB: row(score=[0.0, float("nan")])}, ("score is not a finite number",)),
        ({GITHUB: row(score=[1.0, 1.0])}, ("sums to 2", "from 0 to 1")),
        ({GITHUB: row(score=["1.0"])}, ("score",)),
        ({GITHUB: row(score=-1.0)}, ("from 0 to 1",)),
        ({GITHUB: row(env_extras={})}, ("task_key",)),
        ({GITHUB: row(env_extras={"task_key": "x" * 301})}, ("task_key",)),
        ({GITHUB: row(data_source="booking")}, ("another file's",)),
        ({GITHUB: b'{"prompt": "x"}\n'}, ("the row has no input_prompt",)),
        ({GITHUB: row(output_response="\ud800")}, ("line 1",)),
        ({GITHUB: row(), "global_step_0/aggregated_results.jsonl": b"[]"}, ("one object",)),
        (
            {GITHUB: row(), "global_step_0/aggregated_results.jsonl": b'{"a": "b"}'},
            ("names and numbers",),
        ),
        (
            {GITHUB: row(), "global_step_0/aggregated_results.jsonl": b'{"\\ud800": 1}'},
            ("names and numbers",),
        ),
        ({"global_step_0/aggregated_results.jsonl": b"{}"}, ("no rollout",)),
        ({}, ("0 files",)),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[0][:30],
)
def test_what_is_no_dump_is_refused_with_a_sentence(
    bring: Import, story: Story, content: dict[str, bytes], words: tuple[str, ...]
) -> None:
    refused(bring(zipped(content)), *words)
    with story.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 0


@pytest.mark.parametrize(
    "content",
    [b"PK", b"no zip at all" * 10, DUMP.read_bytes()[:-30], DUMP.read_bytes()[:5000]],
    ids=["short", "text", "cut at the end", "cut early"],
)
def test_a_file_that_is_no_zip_is_refused(bring: Import, content: bytes) -> None:
    refused(bring(content), "zip")


def test_a_damaged_member_is_refused(bring: Import) -> None:
    content = bytearray(DUMP.read_bytes())
    content[4000:4040] = b"\x00" * 40
    refused(bring(bytes(content)))


def test_an_endless_line_is_refused_before_it_is_parsed(bring: Import) -> None:
    refused(bring(zipped({GITHUB: b'{"input_prompt": "' + b"x" * (17 << 20)})), "more than a")


def test_empty_and_text_fields_survive(served: Served, bring: Import) -> None:
    text = 'ß <tool_call>\n{"name": "f", "arguments": {"a": "\x00"}}\n</tool_call>'
    run_id = bring(zipped({GITHUB: row(output_response=text) + row(output_response="")})).json()
    page = read(served, f"/v1/runs/{run_id['id']}/trajectories")["data"]
    assert sorted(each["num_turns"] for each in page) == [0, 1]


def test_an_edited_score_is_another_import(bring: Import, imported: str) -> None:
    def fail(each: dict[str, Any]) -> None:
        each["score"] = [0.0] * len(each["score"])

    assert bring(edited(GITHUB, fail)).json()["id"] != imported


def test_too_many_imports_at_once_are_told_to_wait(served: Served, bring: Import) -> None:
    app = served.server.config.app
    assert isinstance(app, FastAPI)
    pool = BoundedPool(threads=1, waiting=0, busy=ImportsBusy, requests="imports")
    app.state.services = replace(app.state.services, dataset_pools=DatasetPools(imports=pool))
    response = bring()
    assert (response.status_code, response.json()["code"]) == (503, "imports_busy")
    assert "Too many imports are waiting" in response.json()["detail"]
