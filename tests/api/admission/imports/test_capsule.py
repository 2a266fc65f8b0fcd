"""A capsule becomes a run again, with the same figures; what is no capsule of a run is refused."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import httpx
import pytest
from sqlalchemy import func, select, update

from api.results.evals.store import count_outcomes, list_evals
from api.tables import Checkpoint, OutboxMessage, OutcomeRecord, Run, RunEvent
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.results.spending import a_step, an_evaluation
from tests.fixtures.skyrl import DUMP

FIGURES = (
    "evals",
    "evals?threshold=0.5",
    "evals/report",
    "signal",
    "compute",
    "metrics",
    "patterns",
    "trajectories?limit=200",
)
Members = dict[str, bytes]


@pytest.fixture
def original(story: Story) -> str:
    """A run with steps, evaluations, a ledger, a checkpoint and a Slack channel."""
    run_id = story.running(spec(env_keys=("booking",), channel="#training"))
    story.push(
        run_id,
        an_evaluation(story, run_id, 0, 0.2),
        a_step(story, run_id, 1),
        a_step(story, run_id, 2),
        story.checkpoint(run_id, 2),
        an_evaluation(story, run_id, 40, 0.6),
    )
    story.finish(run_id, 40)
    return run_id


def capsule_of(served: Served, run_id: str) -> bytes:
    with served.client() as client:
        response = client.get(f"/v1/runs/{run_id}/capsule")
    assert response.status_code == 200
    return response.content


@pytest.fixture
def capsule(served: Served, original: str) -> bytes:
    return capsule_of(served, original)


def bring(served: Served, content: bytes, key: str | None = None) -> httpx.Response:
    with served.client(key) as client:
        return client.post("/v1/imports/capsule", content=content)


def rewritten(content: bytes, change: Callable[[Members], object]) -> bytes:
    """The capsule with other members, whose digests are right."""
    with ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    manifest = json.loads(members["capsule.json"])
    listed = manifest.get("members")
    for name, data in members.items() if isinstance(listed, dict) else ():
        if name in listed:
            digest = hashlib.sha256(data).hexdigest()
            listed[name] = {"sha256": digest, "size_bytes": len(data)}
    members["capsule.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as new:
        for name, data in members.items():
            new.writestr(name, data)
    return buffer.getvalue()


def figures(served: Served, run_id: str) -> dict[str, Any]:
    """Everything that is computed from a run's rows, without its id."""
    found = {}
    with served.client() as client:
        for path in FIGURES:
            response = client.get(f"/v1/runs/{run_id}/{path}")
            assert response.status_code == 200, response.text
            found[path] = json.loads(response.text.replace(run_id, "RUN"))
    return found


def test_the_figures_are_those_of_the_original(
    served: Served, original: str, capsule: bytes
) -> None:
    response = bring(served, capsule)
    assert response.status_code == 201, response.text
    run = response.json()
    assert run["origin"]["source"] == original
    assert (run["status"], run["end_reason"]["code"]) == ("succeeded", "completed")
    assert figures(served, run["id"]) == figures(served, original)
    with served.client() as client:
        theirs = client.get("/v1/compare", params={"a": f"{original}@0", "b": f"{run['id']}@40"})
    assert theirs.json()["decodings"]["sampled"]["all"]["n"] == 60


def test_events_are_copied_and_the_import_is_the_last_one(
    served: Served, story: Story, original: str, capsule: bytes
) -> None:
    run_id = bring(served, capsule).json()["id"]
    with served.client() as client:
        pages = [
            client.get(f"/v1/runs/{each}/events", params={"limit": 1000}).json()["data"]
            for each in (original, run_id)
        ]
    facts = [[(e["seq"], e["type"], e["attempt"], e["data"]) for e in page] for page in pages]
    assert facts[1][:-1] == facts[0]
    assert (pages[1][-1]["type"], pages[1][-1]["seq"]) == ("run.imported", len(pages[0]) + 1)


def test_nobody_is_notified_and_no_checkpoint_is_promised(
    served: Served, story: Story, capsule: bytes
) -> None:
    run_id = bring(served, capsule).json()["id"]
    with story.database.transaction() as session:
        for table in (OutboxMessage, Checkpoint):
            query = select(func.count()).select_from(table).where(table.run_id == run_id)
            assert session.scalar(query) == 0
        assert session.get_one(Run, run_id).spec["notify"]["slack"] is None


def test_a_probe_keeps_its_verdicts(served: Served, story: Story) -> None:
    probe = {"tasks_per_env": 40, "n_samples_per_prompt": 8}
    body = spec(env_keys=("booking",)).model_dump(mode="json") | {"kind": "probe", "probe": probe}
    run_id = story.running(RunSpec.model_validate(body))
    story.push(run_id, story.probed(run_id, {"booking": 3}))
    story.finish(run_id, 0)
    imported = bring(served, capsule_of(served, run_id))
    assert imported.status_code == 201, imported.text
    other = imported.json()["id"]
    with served.client() as client:
        reports = [client.get(f"/v1/runs/{each}/probe").json() for each in (run_id, other)]
    assert reports[0]["environments"]
    assert reports[0] | {"run_id": ""} == reports[1] | {"run_id": ""}


def test_its_own_capsule_has_the_same_outcomes(served: Served, capsule: bytes) -> None:
    again = capsule_of(served, bring(served, capsule).json()["id"])
    contents = []
    for content in (capsule, again):
        with ZipFile(io.BytesIO(content)) as archive:
            contents.append([archive.read(name) for name in ("outcomes.jsonl", "evals.json")])
    assert contents[0] == contents[1]


def test_what_an_older_trainer_did_not_count_stays_unknown(
    served: Served, story: Story, original: str
) -> None:
    unknown = {"num_thinking_tokens": None, "reset_s": None, "modality": None}
    with story.database.transaction() as session:
        session.execute(update(OutcomeRecord).values(unknown))
    run_id = bring(served, capsule_of(served, original)).json()["id"]
    with story.database.transaction() as session:
        query = select(OutcomeRecord).where(OutcomeRecord.run_id == run_id)
        for outcome in session.scalars(query):
            assert {name: getattr(outcome, name) for name in unknown} == unknown
            assert outcome.tool_errors == {}
        evals = list_evals(session, run_id)
        tasks = [task for each in count_outcomes(session, run_id, evals).values() for task in each]
    assert {task.modality for task in tasks} == {None}


def test_a_dump_survives_a_capsule(served: Served, imported: str) -> None:
    response = bring(served, capsule_of(served, imported))
    assert response.status_code == 201, response.text
    body = response.json()
    assert body["origin"]["is_schedule_known"] is False
    with served.client() as client:
        reports = [
            client.get(f"/v1/runs/{each}/evals/report").text.replace(each, "RUN")
            for each in (imported, body["id"])
        ]
    assert reports[0] == reports[1]


def test_the_same_capsule_is_adopted_in_its_project_only(served: Served, capsule: bytes) -> None:
    first, second = bring(served, capsule), bring(served, capsule)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    stranger = bring(served, capsule, served.stranger_key)
    assert stranger.status_code == 201
    with served.client(served.stranger_key) as client:
        assert client.get(f"/v1/runs/{first.json()['id']}").status_code == 404


def test_a_lineage_that_names_a_run_here_is_dropped(
    served: Served, original: str, capsule: bytes
) -> None:
    def claim(members: Members) -> None:
        body = json.loads(members["spec.json"])
        body["lineage"]["resumed_from"] = {"run_id": original, "step": 2, "attempt": 1}
        members["spec.json"] = json.dumps(body).encode()

    body = bring(served, rewritten(capsule, claim)).json()
    assert body["spec"]["lineage"]["resumed_from"] is None


def document(name: str, **values: object) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[name] = json.dumps(json.loads(members[name]) | values).encode()

    return change


def first_line(name: str, kind: str | None = None, **values: object) -> Callable[[Members], None]:
    """Change fields of the first line, or of the first event of a kind."""

    def change(members: Members) -> None:
        rows = [json.loads(line) for line in members[name].splitlines()]
        chosen = next(row for row in rows if kind in (None, row.get("type")))
        target = chosen["data"] if kind else chosen
        target.update(values)
        members[name] = b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    return change


def drop(name: str, number: int) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        rows = members[name].splitlines(keepends=True)
        del rows[number]
        members[name] = b"".join(rows)

    return change


def reverse(members: Members) -> None:
    rows = members["outcomes.jsonl"].splitlines(keepends=True)
    members["outcomes.jsonl"] = b"".join(reversed(rows))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (document("spec.json", kind="validate"), "kind validate"),
        (document("spec.json", nonsense=1), "rejects the capsule's spec"),
        (document("capsule.json", status="running"), "was running when"),
        (document("capsule.json", end_code="made_up"), "end reason"),
        (document("capsule.json", run_id="../../x"), "no id of a run"),
        (document("capsule.json", config_hash="0"), "config_hash"),
        (drop("events.jsonl", 3), "count up from 1"),
        (drop("events.jsonl", -1), "and the manifest"),
        (first_line("events.jsonl", type="x"), "events.jsonl line 1: type"),
        (first_line("events.jsonl", data={"a": "\ud800"}), "cannot store"),
        (first_line("events.jsonl", kind="eval.completed", step=-1), "step: input"),
        (first_line("events.jsonl", kind="eval.completed", step=10**7), "has no step"),
        (first_line("events.jsonl", kind="eval.completed", decoding="other"), "no event has"),
        (first_line("events.jsonl", kind="eval.completed", metrics={"x" * 400: 1}), "names of"),
        (first_line("events.jsonl", kind="eval.completed", metrics={"x": "y"}), "metrics"),
        (first_line("events.jsonl", kind="trainer.started", versions=3), "versions"),
        (first_line("outcomes.jsonl", trajectory="../../run_x/secret"), "no key of a file"),
        (first_line("outcomes.jsonl", step="0"), "step must be a number"),
        (first_line("outcomes.jsonl", attempt=10**6), "attempt must be a number"),
        (first_line("outcomes.jsonl", task_key="x" * 5000), "task_key"),
        (first_line("outcomes.jsonl", status="great"), "status"),
        (first_line("outcomes.jsonl", num_turns=10**12), "cannot store"),
        (first_line("outcomes.jsonl", unknown=1), "unknown"),
        (reverse, "order of steps"),
        (lambda members: members.update({"outcomes.jsonl": b"[1]\n"}), "it is no object"),
        (lambda members: members.update({"outcomes.jsonl": b"{"}), "no JSON"),
    ],
)
def test_a_twisted_capsule_is_refused_and_leaves_nothing(
    served: Served,
    story: Story,
    capsule: bytes,
    change: Callable[[Members], object],
    words: str,
) -> None:
    response = bring(served, rewritten(capsule, change))
    assert response.status_code == 422, response.text
    assert response.json()["code"] == "invalid_import"
    assert words in response.json()["detail"]
    with story.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 1
        assert not session.scalars(select(RunEvent).where(RunEvent.type == "run.imported")).all()


def test_a_changed_byte_is_found(served: Served, capsule: bytes) -> None:
    content = bytearray(capsule)
    content[200] ^= 1
    assert bring(served, bytes(content)).status_code == 422


def test_a_dump_is_no_capsule(served: Served) -> None:
    response = bring(served, DUMP.read_bytes())
    assert response.status_code == 422
    assert "no member of a capsule" in response.json()["detail"]
