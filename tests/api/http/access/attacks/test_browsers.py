"""From a page of another site, a poisoned host, or a text that becomes part of a page."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from api.http.dashboard.sessions import COOKIE
from api.http.requests.permissions import FORMS, PAGES, PERMISSIONS
from api.tables import ApiKey
from api.tables.database import Database
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.api.http.access.conftest import Cast
from tests.api.http.access.test_crossing import rows_of_owner

__all__ = ["blobs", "served", "story", "story_url"]
EVIL = "https://evil.example"
SCRIPT = '"><script>alert(1)</script><svg/onload=alert(2)>'
POISON: dict[str, str] = {
    "Host": "evil.example",
    "X-Forwarded-Host": "evil.example",
    "X-Original-Host": "evil.example",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Prefix": "/evil",
    "Forwarded": "host=evil.example",
}


@pytest.mark.parametrize("origin", [EVIL, "null"])
async def test_a_form_of_another_site_signs_nobody_out(cast: Cast, origin: str) -> None:
    """It comes without the strict cookie; the answer must not take the cookie away."""
    cookieless = await cast.http.post("/logout", headers={"Origin": origin})
    assert cookieless.status_code == 401
    assert COOKIE not in cookieless.headers.get("set-cookie", "")
    own = await cast.http.post("/logout", headers={"Origin": "http://service"})
    assert own.status_code == 303
    assert COOKIE in own.headers["set-cookie"]


@pytest.mark.parametrize("origin", [EVIL, "null"])
async def test_no_origin_counts_as_ours_where_the_address_of_links_has_no_scheme(
    cast: Cast, app: FastAPI, origin: str
) -> None:
    """`urlsplit` finds no host in it, nor in `null`: both were the same."""
    services = app.state.services
    changed = services.settings.model_copy(update={"link_url": "hillclimb.example.org"})
    app.state.services = replace(services, settings=changed)
    answer = await cast.http.post(
        "/login", data={"key": cast.of("admin").secret}, headers={"Origin": origin}
    )
    assert answer.status_code == 401
    assert COOKIE not in answer.cookies


async def test_no_header_of_a_request_gets_into_a_sign_in_link(cast: Cast) -> None:
    """Who is sent a link to another host gives that host the code."""
    admin = cast.of("admin")
    headers = POISON | {"Authorization": f"Bearer {admin.secret}"}
    minted = await cast.http.post("/v1/session-codes", headers=headers)
    assert minted.json()["login_url"].startswith("http://service/login?code=")
    texts = await cast.http.get("/llms.txt", headers=POISON)
    login = await cast.http.get("/", headers=POISON)
    for answer in (minted, texts, login):
        assert "evil" not in answer.text + str(answer.headers)
    assert login.headers["location"] == "/login?next=/"


async def test_every_form_needs_the_token_of_its_own_session(
    cast: Cast, database: Database
) -> None:
    """One row of permissions per form: a new one is tried too."""
    admin, other = cast.of("operator"), cast.of("operator")
    cookies, tokens = [], []
    for each in (admin, other):
        cast.http.cookies.clear()
        await cast.http.post("/login", data={"key": each.secret})
        cookies.append(cast.http.cookies[COOKIE])
        page = (await cast.http.get("/admin/members")).text
        tokens.append(page.split('name="token" value="', 1)[1].split('"', 1)[0])
    cast.http.cookies.clear()
    cast.http.cookies.set(COOKIE, cookies[0])
    with database.transaction() as session:
        before = [(each.id, each.revoked_at) for each in session.query(ApiKey)]
    values = {"key_id": before[-1][0], "run_id": "run_1", "action": "cancel"}
    forms = [row for row, access in PERMISSIONS.items() if row.startswith("POST ")
             and (access in FORMS or access in PAGES)]  # fmt: skip
    assert len(forms) > 10
    for row in forms:
        path = row.removeprefix("POST ").format(**values)
        for token in ("", "0" * 64, tokens[1]):
            fields = {"token": token, "name": "x", "email": "x@example.org", "role": "admin"}
            answer = await cast.http.post(path, data=fields, headers={"Origin": EVIL})
            assert answer.status_code == 401, (row, answer.status_code)
    with database.transaction() as session:
        assert [(each.id, each.revoked_at) for each in session.query(ApiKey)] == before


def test_what_people_and_trainers_write_is_text_on_every_page(story: Story, served: Served) -> None:
    """Notes, titles, messages, lines of logs, names of metrics, answers of environments."""
    run_id = story.running(spec(env_keys=("booking",)))
    step = story.step(run_id, 1, {"booking": 0.5})
    rows = tuple(
        row.model_copy(update={"task_key": SCRIPT, "template": SCRIPT, "detail": SCRIPT})
        for row in step.outcomes
    )
    metrics = dict(step.metrics) | {f"reward/{SCRIPT}": 1.0}
    story.push(run_id, step.model_copy(update={"outcomes": rows, "metrics": metrics}))
    evaluation = story.evaluation(run_id, 1, {"booking": 0.5}, tasks=8)
    story.push(run_id, evaluation.model_copy(update={"decoding": "sampled"}))
    with served.client() as admin, served.browser() as browser:
        notes = {"note": SCRIPT, "links": {"pr": "https://example.org/?q=" + SCRIPT[1:8]}}
        assert admin.patch(f"/v1/runs/{run_id}", json=notes).is_success
        issue = {"title": SCRIPT, "severity": "critical", "baseline": f"{run_id}@1"}
        assert admin.post("/v1/issues", json=issue).is_success
        experiment = {"key": "v1", "title": SCRIPT, "hypothesis": SCRIPT, "baseline": run_id}
        assert admin.post("/v1/experiments", json=experiment).is_success
        browser.post("/login", data={"key": served.key})
        rollout = rows[0].rollout_id
        pages = [
            "/", f"/runs/{run_id}", f"/runs/{run_id}/metrics", f"/runs/{run_id}/rollouts",
            f"/runs/{run_id}/rollouts/{rollout}", f"/runs/{run_id}/log", f"/runs/{run_id}/config",
            f"/runs/{run_id}/signal", f"/runs/{run_id}/attempts", f"/runs/{run_id}/checkpoints",
            "/issues", "/experiments", "/experiments/v1", "/experiments/changelog", "/compare",
            f"/?name={SCRIPT}", f"/admin/audit?actor={SCRIPT}", f"/login?next={SCRIPT}",
            f"/submit?preset={SCRIPT}", f"/runs/{SCRIPT}",
        ]  # fmt: skip
        texts = 0
        for path in pages:
            page: httpx.Response = browser.get(path, follow_redirects=True)
            policy = page.headers["content-security-policy"]
            if "text/html" not in page.headers["content-type"]:
                assert policy.startswith("default-src 'none'; form-action 'none'"), path
                assert page.headers["x-content-type-options"] == "nosniff"
                continue
            assert "<script>alert" not in page.text, path
            assert "<svg/onload" not in page.text, path
            assert "script-src 'self'" in policy, path
            texts += "&lt;script&gt;alert" in page.text
        assert texts > 5, "the text is there, as text"


async def test_the_pages_of_an_owner_are_not_a_strangers(cast: Cast, database: Database) -> None:
    story = Story(database)
    story.prepare()
    run_id = story.running(spec(name="crownjewel"))
    before = rows_of_owner(database)
    await cast.http.post("/login", data={"key": cast.stranger("admin").secret})
    values = {
        "run_id": run_id, "rollout_id:path": "r", "action": "cancel", "campaign_id": "c",
        "key": "v1", "name": "n", "number": "1", "base": "1", "key_id": "k",
    }  # fmt: skip
    for row, access in PERMISSIONS.items():
        method, path = row.split(" ")
        if access not in PAGES:
            continue
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        answer = await cast.http.request(method, path, params={"run": run_id, "a": run_id})
        assert answer.status_code < 500, row
        assert "crownjewel" not in answer.text, row
    assert rows_of_owner(database) == before
