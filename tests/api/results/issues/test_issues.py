"""The ledger of issues: words are stored, figures are computed when it is read."""

from __future__ import annotations

import pytest

from api.results.issues import store
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.results.issues.conftest import BODY, Create, Json, evaluate


def get(served: Served, path: str, **query: object) -> Json:
    with served.client() as client:
        answer = client.get(path, params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def test_a_pattern_that_went_is_fixed_by_the_rates_of_both_evaluations(
    create: Create, run_id: str
) -> None:
    issue = create()
    assert (issue["number"], issue["state"], issue["created_by"][:4]) == (1, "open", "key:")
    measured = issue["measured"]
    assert (measured["status"], measured["rule"], measured["detectors"]) == ("fixed", "i1", 1)
    assert measured["before"]["value"] == 0.4
    assert (measured["after"]["value"], measured["after"]["low"]) == (0.0, 0.0)
    assert 0.0 < measured["after"]["high"] < 0.1
    assert measured["p_value"] == 2 * 0.5**16
    assert (measured["is_paired"], measured["num_paired"], measured["decoding"]) == (
        True,
        40,
        "sampled",
    )
    assert issue["baseline"] == {"run_id": run_id, "step": 0}


def test_an_issue_without_a_later_evaluation_needs_analysis_until_it_is_named(
    create: Create, served: Served, run_id: str
) -> None:
    issue = create(after=None)
    assert issue["measured"]["status"] == "needs_analysis"
    assert issue["measured"]["why"] == "there is no evaluation after it yet"
    assert (issue["measured"]["before"]["value"], issue["measured"]["after"]) == (0.4, None)
    with served.client() as client:
        path = f"/v1/issues/{issue['id']}"
        changed = client.patch(path, json={"after": f"{run_id}@40", "impact": "infinite loops"})
        again = client.patch(path, json={"after": None}).json()
    assert changed.json()["measured"]["status"] == "fixed"
    assert (changed.json()["impact"], changed.json()["title"]) == ("infinite loops", BODY["title"])
    assert again["measured"]["status"] == "needs_analysis"
    assert again["impact"] == "infinite loops"


@pytest.mark.parametrize(
    ("symptom", "before", "status"),
    [("failure", 0.5, "unchanged"), ("infra_error", 0.0, "needs_analysis"),
     ("tool_error", 0.0, "needs_analysis"), ("repeated_call", 0.0, "needs_analysis"),
     ("turn_too_long", 0.0, "needs_analysis"), ("ungraded", 0.0, "needs_analysis")],
)  # fmt: skip
def test_symptoms_of_outcomes_need_no_detectors(
    create: Create, symptom: str, before: float, status: str
) -> None:
    measured = create(symptom=symptom, env_key="booking")["measured"]
    assert (measured["before"]["value"], measured["detectors"]) == (before, None)
    assert measured["status"] == status


def test_another_run_with_other_tasks_is_tested_without_pairs(create: Create, story: Story) -> None:
    other = story.running()
    event = story.evaluation(other, 20, {"booking": 0.9}, tasks=60)
    rows = tuple(
        row.model_copy(update={"task_key": f"new-{i}"}) for i, row in enumerate(event.outcomes)
    )
    story.push(other, event.model_copy(update={"outcomes": rows}))
    measured = create(symptom="failure", after=f"{other}@20")["measured"]
    assert (measured["is_paired"], measured["num_paired"]) == (False, 0)
    assert measured["delta"] == pytest.approx(0.1 - 0.5)
    assert measured["status"] == "improved"


def test_rollouts_that_nobody_searched_are_not_known(create: Create, story: Story) -> None:
    older = story.running()
    story.push(older, story.evaluation(older, 0, {"booking": 0.5}, tasks=40))
    measured = create(baseline=f"{older}@0")["measured"]
    assert measured["why"] == "no rollout of the earlier evaluation is known"
    assert (measured["detectors"], measured["before"]) == (1, None)


def test_versions_of_detectors_are_never_mixed(create: Create, story: Story) -> None:
    older = story.running()
    evaluate(story, older, 0, 0.9, version=0)
    measured = create(baseline=f"{older}@0")["measured"]
    assert (measured["status"], measured["p_value"]) == ("needs_analysis", None)
    assert "Versions 0 and 1 of the detectors" in measured["why"]
    assert f"hillclimb rescore {older} --patterns" in measured["why"]


def test_lists_are_pages_newest_first_with_filters(create: Create, served: Served) -> None:
    first = create()
    second = create(severity="low", env_key="booking")
    third = create(title="Too many errors", symptom="tool_error")
    page = get(served, "/v1/issues", limit=2)
    assert [each["number"] for each in page["data"]] == [3, 2]
    assert page["has_more"]
    rest = get(served, "/v1/issues", before=second["id"])
    assert [each["id"] for each in rest["data"]] == [first["id"]]
    assert [e["id"] for e in get(served, "/v1/issues", severity="low")["data"]] == [second["id"]]
    assert [e["id"] for e in get(served, "/v1/issues", env="booking")["data"]] == [second["id"]]
    with served.client() as client:
        client.post(f"/v1/issues/{third['id']}/close", json={"resolution": "retries"})
    assert [e["number"] for e in get(served, "/v1/issues", state="closed")["data"]] == [3]
    assert [e["number"] for e in get(served, "/v1/issues", state="open")["data"]] == [2, 1]


def test_a_closed_issue_does_not_change_and_keeps_its_figures(
    create: Create, served: Served
) -> None:
    issue = create()
    path = f"/v1/issues/{issue['id']}"
    with served.client() as client:
        closed = client.post(f"{path}/close", json={"resolution": "prompt v0.2"})
        assert closed.status_code == 200, closed.text
        again = client.post(f"{path}/close", json={})
        changed = client.patch(path, json={"title": "x"})
    assert (closed.json()["state"], closed.json()["resolution"]) == ("closed", "prompt v0.2")
    assert closed.json()["measured"] == issue["measured"]
    assert (again.status_code, changed.status_code) == (409, 409)
    assert changed.json()["code"] == "issue_closed"


def test_the_ledger_has_the_tables_of_an_experiment_log(create: Create, served: Served) -> None:
    create(severity="low", title="Errors", symptom="tool_error")
    create(description="Env rejects | non-tool-call\nresponses", impact="Infinite loops")
    ledger = get(served, "/v1/issues/ledger")
    assert ledger["num_issues"] == 2
    lines = ledger["markdown"].splitlines()
    assert lines[0] == "| Issue | Severity | Description | Impact |"
    assert lines[2] == (
        r"| **2. Cannot signal done** | CRITICAL | Env rejects \| non-tool-call responses"
        " | Infinite loops |"
    )
    assert lines[3].startswith("| **1. Errors** | LOW |")
    assert lines[5] == "| Issue | Measured by | Baseline | After | p | Status |"
    assert "| 40.0% (26–55) of 40 at run_" in lines[7]
    assert lines[7].endswith("| <0.001 | FIXED |")
    assert "rule i1, detectors of version 1." in lines[-1]
    assert get(served, "/v1/issues/ledger", severity="high")["markdown"] == "No issues.\n"


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"symptom": "sadness"}, 422, "there is no symptom 'sadness'"),
        ({"severity": "P0"}, 422, "severity"),
        ({"status": "fixed"}, 422, "status"),
        ({"title": ""}, 422, "title"),
        ({"title": "a\x00b"}, 400, "U+0000"),
        ({"baseline": "somewhere"}, 422, "baseline"),
        ({"baseline": "run_nowhere@0"}, 404, "run_nowhere"),
        ({"baseline": None}, 422, "baseline"),
        ({"description": "x" * 4001}, 422, "description"),
    ],
)
def test_what_is_no_issue_is_refused(
    served: Served, run_id: str, changes: Json, status: int, words: str
) -> None:
    with served.client() as client:
        body = {**BODY, "baseline": f"{run_id}@0", **changes}
        answer = client.post("/v1/issues", json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.text


def test_a_step_without_an_evaluation_and_empty_fields_are_refused(
    create: Create, served: Served, run_id: str
) -> None:
    issue = create()
    with served.client() as client:
        path = f"/v1/issues/{issue['id']}"
        missing = client.patch(path, json={"after": f"{run_id}@7"})
        empty = client.patch(path, json={"title": None})
        unknown = client.patch(path, json={"symptom": "sadness"})
        nowhere = client.get("/v1/issues/iss_nowhere")
        page = client.get("/v1/issues", params={"before": "iss_nowhere"})
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_eval")
    assert "after: run" in missing.json()["detail"]
    assert (empty.status_code, unknown.status_code) == (422, 422)
    assert "leave the key out" in empty.text
    assert (nowhere.status_code, page.status_code) == (404, 404)


def test_another_projects_issues_and_runs_do_not_exist(
    create: Create, served: Served, run_id: str
) -> None:
    issue = create()
    path = f"/v1/issues/{issue['id']}"
    with served.client(served.stranger_key) as stranger:
        assert stranger.get(path).status_code == 404
        assert stranger.patch(path, json={"title": "mine"}).status_code == 404
        assert stranger.post(f"{path}/close", json={}).status_code == 404
        assert stranger.get("/v1/issues").json()["data"] == []
        body = {**BODY, "baseline": f"{run_id}@0"}
        assert stranger.post("/v1/issues", json=body).status_code == 404


def test_a_repeated_request_creates_one_issue(served: Served, run_id: str) -> None:
    body = {**BODY, "baseline": f"{run_id}@0"}
    with served.client() as client:
        headers = {"Idempotency-Key": "once"}
        first, second = (client.post("/v1/issues", json=body, headers=headers) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotent-replayed"] == "true"
    assert len(get(served, "/v1/issues")["data"]) == 1


def test_a_full_ledger_refuses_another_issue(
    create: Create, served: Served, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_ISSUES", 1)
    create()
    with served.client() as client:
        answer = client.post("/v1/issues", json={**BODY, "baseline": f"{run_id}@0"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_issue")
