"""Signing in, the pages, and what a browser may do."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from api.http.dashboard.sessions import SESSION_S, open_session, read_session
from api.runs import store
from api.scheduling.advance import advance
from api.tables import ApiKey
from api.tables.access.identity import NotAuthenticated, Principal, Scope
from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import SECRET, Served
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.hillclimb.cli.first_hour.test_conclusion import trained

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def state_of(page: httpx.Response) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="state">(.*?)</script>', page.text)
    assert found is not None
    state: dict[str, object] = json.loads(found.group(1))
    return state


def sign_in(served: Served, browser: httpx.Client, target: str = "/") -> httpx.Response:
    return browser.post("/login", data={"key": served.key, "next": target})


def test_a_page_asks_to_sign_in_and_leads_back(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.browser() as browser:
        away = browser.get(f"/runs/{run_id}")
        assert away.status_code == 303
        assert away.headers["location"] == f"/login?next=/runs/{run_id}"
        assert f'value="/runs/{run_id}"' in browser.get(away.headers["location"]).text
        back = sign_in(served, browser, f"/runs/{run_id}")
        assert back.headers["location"] == f"/runs/{run_id}"
        cookie = back.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert served.key not in cookie
        assert browser.get(f"/runs/{run_id}").status_code == 200


def test_a_wrong_key_is_told_so_and_gets_no_session(served: Served) -> None:
    with served.browser() as browser:
        answer = browser.post("/login", data={"key": "hc_wrong", "next": "/"})
    assert answer.status_code == 401
    assert "not valid" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil", "x"])
def test_signing_in_never_leads_to_another_site(served: Served, target: str) -> None:
    with served.browser() as browser:
        assert sign_in(served, browser, target).headers["location"] == "/"


def test_a_path_brings_no_query_of_its_own_into_signing_in(served: Served) -> None:
    with served.browser() as browser:
        away = browser.get("/runs/x%26code%3Dmine")
    assert away.headers["location"] == "/login?next=/runs/x%26code%3Dmine"


def test_a_code_signs_in_once(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.client() as client:
        minted = client.post("/v1/session-codes").json()
    path = f"/login?code={minted['code']}&next=/runs/{run_id}"
    with served.browser() as first, served.browser() as second:
        assert press(first, path).headers["location"] == f"/runs/{run_id}"
        assert first.get(f"/runs/{run_id}").status_code == 200
        assert second.get(path).status_code == 401
        assert second.get(f"/runs/{run_id}").status_code == 303
    assert minted["login_url"].endswith(f"/login?code={minted['code']}")


def press(browser: httpx.Client, path: str, **changes: str) -> httpx.Response:
    """Open the page of a sign-in link and press its button, with changed fields or headers."""
    page = browser.get(path)
    assert page.status_code == 200, page.text
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
    return browser.post("/login", data=fields | changes)


def test_a_link_alone_changes_no_session(story: Story, served: Served) -> None:
    """The link of an attacker who wants somebody to work in the attacker's own project."""
    run_id = story.running()
    with served.client(served.stranger_key) as attacker:
        code = attacker.post("/v1/session-codes").json()["code"]
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/login?code={code}&next=/")
        assert "hillclimb_session" not in page.headers.get("set-cookie", "")
        assert "prj_stranger" in page.text
        assert "A session that this browser has already ends" in page.text
        assert browser.get(f"/runs/{run_id}").status_code == 200


def test_the_button_of_a_link_works_in_the_browser_that_opened_it_alone(
    story: Story, served: Served
) -> None:
    """A page of another site posts the code and a token that it got itself, without our cookie."""
    with served.client() as client:
        code = client.post("/v1/session-codes").json()["code"]
    path = f"/login?code={code}"
    with served.browser() as other, served.browser() as browser:
        foreign = dict(re.findall(r'name="(\w+)" value="([^"]*)"', other.get(path).text))
        assert browser.post("/login", data=foreign).status_code == 401
        assert press(browser, path, token=foreign["token"]).status_code == 401
        assert press(browser, path).status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_form_of_another_site_signs_nobody_in(served: Served, origin: str) -> None:
    with served.browser() as browser:
        form = {"key": served.key, "next": "/"}
        answer = browser.post("/login", data=form, headers={"Origin": origin})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        own = browser.post("/login", data=form, headers={"Origin": served.url})
        assert own.status_code == 303


def test_a_session_reads_the_api_and_the_stream_but_changes_nothing(
    story: Story, served: Served
) -> None:
    run_id = story.running()
    story.finish(run_id, 40)
    with served.browser() as browser:
        sign_in(served, browser)
        assert browser.get(f"/v1/runs/{run_id}").status_code == 200
        assert "event: end" in browser.get(f"/v1/runs/{run_id}/events/stream").text
        assert browser.post(f"/v1/runs/{run_id}/cancel").status_code == 401
        assert browser.post("/v1/session-codes").status_code == 401
        browser.post("/logout")
        assert browser.get(f"/v1/runs/{run_id}").status_code == 401


def test_a_false_an_old_and_a_revoked_session_are_refused(story: Story, served: Served) -> None:
    key = f"key_{served.key[-8:]}"
    principal = Principal(
        project_id=PROJECT, key_id=key, key_name="t", scopes=frozenset({Scope.RUNS_READ.value})
    )
    cookie = open_session(principal, secret=SECRET, now=NOW)
    late = NOW + timedelta(seconds=SESSION_S + 1)
    with story.database.transaction() as session:
        assert read_session(session, cookie, secret=SECRET, now=NOW).project_id == PROJECT
        for bad, now in ((cookie[:-1] + "x", NOW), ("a.b", NOW), ("é", NOW), (cookie, late)):
            with pytest.raises(NotAuthenticated):
                read_session(session, bad, secret=SECRET, now=now)
        with pytest.raises(NotAuthenticated):
            read_session(session, cookie, secret="another secret", now=NOW)
        session.get_one(ApiKey, key).revoked_at = NOW
        with pytest.raises(NotAuthenticated, match="revoked"):
            read_session(session, cookie, secret=SECRET, now=NOW)


def test_the_run_page_embeds_the_figures_without_outcome_rows(story: Story, served: Served) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}))
    story.push(run_id, story.phase(run_id, 1, "rollout"), story.step(run_id, 1, {"booking": 0.5}))
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/runs/{run_id}")
    state = state_of(page)
    types = [event["type"] for event in state["events"]]  # type: ignore[attr-defined]
    assert types[-2:] == ["eval.completed", "step.completed"]
    assert "phase.started" not in types
    assert state["env_keys"] == ["booking", "github", "outlook"]
    assert "rollout_id" not in page.text
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "style=" not in page.text


def test_an_unknown_address_is_a_page_in_a_browser_and_a_problem_elsewhere(served: Served) -> None:
    asked = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with served.browser() as browser:
        page = browser.get("/runs", headers=asked)
        others = [browser.get("/runs"), browser.get("/v1/run", headers=asked)]
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "No page has this address" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert [each.json()["code"] for each in others] == ["not_found"] * 2


def test_what_a_user_wrote_is_text_on_every_page(story: Story, served: Served) -> None:
    evil = "</script><script>alert(1)</script>"
    run_id = story.running()
    story.finish(run_id, 3, ReasonCode.SPEC_REJECTED, message=evil)
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/runs/{run_id}")
        missing = browser.get(f"/runs/{evil.replace('/', '')}")
    assert evil not in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    assert missing.status_code == 404
    assert "<script>alert" not in missing.text


def test_the_list_shows_the_projects_runs_only(story: Story, served: Served) -> None:
    with served.browser() as browser:
        sign_in(served, browser)
        assert "No runs yet." in browser.get("/").text
        story.submit(spec("mine"))
        story.submit(spec("theirs"), project_id="prj_stranger")
        page = browser.get("/").text
    assert "mine" in page
    assert "theirs" not in page


@pytest.mark.parametrize(
    ("rate", "after", "tone", "sentence"),
    [
        (
            0.0,
            0.0,
            "warn",
            "Nothing was learned: no step had a gradient: 0 % of 192 rollouts",
        ),
        (0.5, 0.8, "good", "Improved: pass@1 20.0 → 80.0 % (sampled, n = "),
    ],
)
def test_a_run_that_ended_says_what_was_learned_and_is_green_only_then(
    story: Story, served: Served, rate: float, after: float, tone: str, sentence: str
) -> None:
    before = 0.2 if after else 0.0
    run_id = trained(story, "climb", before=before, after=after, rate=rate)
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/runs/{run_id}").text
        banner = browser.get(f"/dashboard/runs/{run_id}/banner").json()
    assert banner["tone"] == tone
    assert sentence in banner["text"]
    assert f'data-status="succeeded" data-tone="{tone}"' in page


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("eval", "The evaluation is complete."),
        ("probe", "The probe is complete."),
        ("validate", "The validation is complete."),
        ("preview", "The prompts are rendered."),
    ],
)
def test_a_run_that_trains_nothing_does_not_end_with_steps(
    story: Story, served: Served, kind: str, sentence: str
) -> None:
    body = spec("only").model_dump(mode="json") | {"kind": kind}
    if kind == "validate":
        body["environment"]["provider"] = "fleet"
    run_id = story.running(RunSpec.model_validate(body))
    story.finish(run_id, 0)
    with story.database.transaction() as session:
        advance(session, store.lock_run(session, run_id), now=story.now)
    with served.browser() as browser:
        sign_in(served, browser)
        banner = browser.get(f"/dashboard/runs/{run_id}/banner").json()
    assert banner["text"].startswith(sentence)
    assert "step" not in banner["text"]


def test_a_waiting_run_says_why_it_waits(story: Story, served: Served) -> None:
    run_id = story.submit()
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/runs/{run_id}").text
        banner = browser.get(f"/dashboard/runs/{run_id}/banner").json()
    assert "Position 1 in the queue. No runner is connected." in page
    assert banner == {"tone": "", "text": "Position 1 in the queue. No runner is connected."}


def test_a_run_that_starts_says_what_its_trainer_does(story: Story, served: Served) -> None:
    run_id = story.submit()
    story.launch(run_id)
    story.push(run_id, story.starting(run_id, "imports"), story.starting(run_id, "imports", 6.1))
    story.push(run_id, story.starting(run_id, "ray"))
    with served.browser() as browser:
        sign_in(served, browser)
        banner = browser.get(f"/dashboard/runs/{run_id}/banner").json()
        assert banner["text"] == "A runner is starting the trainer. Now it starts Ray."
        story.push(run_id, story.started(run_id, imports=6.1, ray=3.2))
        assert "imports 6.1 s, ray 3.2 s" in browser.get(f"/runs/{run_id}/attempts").text


@pytest.mark.parametrize(
    "name", ["run.js", "runs.js", "chart.js", "fold.js", "hillclimb.css", "icon.svg"]
)
def test_static_files_are_served_with_their_types(served: Served, name: str) -> None:
    with served.browser() as browser:
        answer = browser.get(f"/static/{name}")
        assert browser.get("/static/..%2fpages.py").status_code == 404
    assert answer.status_code == 200
    kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kind[name.rpartition(".")[2]])


def test_the_page_listens_for_every_type_of_event_there_is(served: Served) -> None:
    with served.browser() as browser:
        script = browser.get("/static/fold.js").text
    types = [kind.model_fields["type"].default for kind in events.Event.__args__]
    types += ["run.created", "run.status_changed", "run.cancel_requested", "attempt.rewound"]
    types += ["run.pause_requested", "guard.tripped", "guard.cleared"]
    types += ["attempt.scheduled", "attempt.claimed", "attempt.ended"]
    assert [name for name in types if f'"{name}"' not in script] == []


def test_the_page_of_an_evaluation_leads_to_the_run_it_evaluates(
    story: Story, served: Served
) -> None:
    source = story.running()
    story.push(source, story.checkpoint(source, 20))
    lineage = {"resumed_from": {"run_id": source, "step": 20, "attempt": 1}}
    told = spec("eval of climb").model_dump(mode="json") | {"kind": "eval", "lineage": lineage}
    run_id = story.submit(RunSpec.model_validate(told))
    with served.browser() as browser:
        sign_in(served, browser)
        page, other = browser.get(f"/runs/{run_id}"), browser.get(f"/runs/{source}")
    assert "Evaluates step 20" in page.text
    assert f'href="/runs/{source}"' in page.text
    assert "20 / 20" not in other.text
    assert 'id="evaluates"' not in other.text
    assert (state_of(page)["run"]["step"], state_of(page)["run"]["total"]) == (0, 20)  # type: ignore[index]
