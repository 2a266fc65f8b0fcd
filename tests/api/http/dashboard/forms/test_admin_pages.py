"""The pages under `/admin`: each does what its API route does, for admins alone."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from api.http.routes.web.forms import audit
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.forms.conftest import demote, hidden, text_of
from tests.api.http.dashboard.stored import sign_in

TABS = ("members", "keys", "secrets", "project", "audit")
FORMS = (
    ("/admin/members", {"email": "ada@example.org", "role": "member"}),
    ("/admin/members/remove", {"email": "ada@example.org"}),
    ("/admin/keys", {"name": "ci", "scope.runs:read": "on"}),
    ("/admin/keys/none/rotate", {}),
    ("/admin/keys/none/revoke", {}),
    ("/admin/secrets", {"name": "fleet", "value": "a-secret-value"}),
    ("/admin/secrets/delete", {"name": "fleet"}),
    ("/admin/project/defaults", {"defaults": "slack_channel: training"}),
    ("/admin/project/limits", {"usd": "10"}),
    ("/admin/project/quotas", {"queued_runs": "3"}),
)


def send(browser: httpx.Client, path: str, tab: str = "members", **fields: str) -> httpx.Response:
    own = hidden(browser.get(f"/admin/{tab}").text, "token", "key")
    return browser.post(path, data=own | fields)


def audited(browser: httpx.Client, served: Served) -> list[tuple[str, str | None]]:
    with served.client() as client:
        records = client.get("/v1/audit").json()["data"]
    signed_in = "POST /login"
    return [(each["route"], each["target"]) for each in records if each["route"] != signed_in]


def test_a_member_is_added_changed_and_removed(browser: httpx.Client, served: Served) -> None:
    assert "No members yet." in browser.get("/admin/members").text
    added = send(browser, "/admin/members", email="Ada@example.org", role="viewer")
    assert added.headers["location"] == "/admin/members?done=member"
    send(browser, "/admin/members", email="ada@example.org", role="admin")
    members = browser.get("/v1/members").json()["data"]
    assert [(each["email"], each["role"]) for each in members] == [("ada@example.org", "admin")]
    assert "role is set" in browser.get(added.headers["location"]).text
    send(browser, "/admin/members/remove", email="ada@example.org")
    assert browser.get("/v1/members").json()["data"] == []
    assert audited(browser, served)[:2] == [
        ("POST /admin/members/remove", "ada@example.org"),
        ("POST /admin/members", "ada@example.org"),
    ]


def test_a_new_key_shows_its_secret_once_and_a_double_click_makes_one(
    browser: httpx.Client, served: Served
) -> None:
    own = hidden(browser.get("/admin/keys").text, "token", "key")
    fields = own | {"name": "ci", "scope.runs:read": "on", "expires": "2099-01-31"}
    first, second = (browser.post("/admin/keys", data=fields) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 409)
    secret = html.unescape(re.search(r'id="secret"[^>]*>([^<]+)<', first.text)[1])  # type: ignore[index]
    assert first.headers["cache-control"] == "no-store"
    page = browser.get("/admin/keys").text
    assert secret not in page + second.text
    assert "2099-01-31" in page
    with served.client(secret) as client:
        assert client.get("/v1/whoami").json()["scopes"] == ["runs:read"]
    with served.client() as client:
        assert [each["name"] for each in client.get("/v1/keys").json()["data"]].count("ci") == 1


def test_a_key_is_rotated_once_by_a_double_click_and_revoked(
    browser: httpx.Client, served: Served
) -> None:
    with served.client() as client:
        made = client.post("/v1/keys", json={"name": "ci", "scopes": ["runs:read"]}).json()
    own = hidden(browser.get("/admin/keys").text, "token", "key") | {"grace_hours": "24"}
    path = f"/admin/keys/{made['id']}/rotate"
    answers = [browser.post(path, data=own) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 409]
    with served.client(made["secret"]) as client:
        assert client.get("/v1/whoami").status_code == 200
    gone = send(browser, f"/admin/keys/{made['id']}/revoke", "keys")
    assert gone.headers["location"] == "/admin/keys?done=revoked"
    with served.client(made["secret"]) as client:
        assert client.get("/v1/whoami").status_code == 401
    assert ("POST /admin/keys/{key_id}/revoke", made["id"]) in audited(browser, served)


def test_a_secret_is_set_and_deleted_and_no_page_has_its_value(
    browser: httpx.Client, served: Served
) -> None:
    value = "do-not-show-me-anywhere"
    assert send(browser, "/admin/secrets", name="fleet-prod", value=value).status_code == 303
    refused = send(browser, "/admin/secrets", name="not a name", value=value)
    assert refused.status_code == 422
    short = send(browser, "/admin/secrets", name="fleet-prod", value="abc")
    assert 400 <= short.status_code < 500
    pages = refused.text + short.text + "".join(browser.get(f"/admin/{tab}").text for tab in TABS)
    assert value not in pages
    assert "fleet-prod" in browser.get("/admin/secrets").text
    send(browser, "/admin/secrets/delete", name="fleet-prod")
    assert browser.get("/v1/secrets").json()["data"] == []
    assert ("POST /admin/secrets/delete", "fleet-prod") in audited(browser, served)


def test_limits_defaults_and_quotas_are_those_of_the_api(browser: httpx.Client) -> None:
    send(browser, "/admin/project/limits", usd="250", max_clusters="4")
    limits = browser.get("/v1/limits").json()
    assert (limits["usd"], limits["hours"], limits["max_clusters"]) == (250.0, None, 4)
    send(browser, "/admin/project/defaults", defaults="slack_channel: '#training'\n")
    stored = browser.get("/v1/project/defaults").json()["defaults"]
    assert stored["slack_channel"] == "#training"
    send(browser, "/admin/project/quotas", queued_runs="3")
    quotas = {each["name"]: each for each in browser.get("/v1/quotas").json()["data"]}
    assert (quotas["queued_runs"]["limit"], quotas["running_runs"]["is_default"]) == (3, True)
    page = browser.get("/admin/project").text
    assert 'name="usd" inputmode="decimal" value="250"' in page
    assert "#training" in html.unescape(page)
    send(browser, "/admin/project/defaults")
    assert browser.get("/v1/project/defaults").json()["defaults"]["slack_channel"] is None


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("/admin/members", {"email": "nobody", "role": "member"}, "address"),
        ("/admin/members", {"email": "a@example.org", "role": "king"}, "role"),
        ("/admin/members/remove", {"email": "a@example.org"}, "a@example.org"),
        ("/admin/keys", {"name": "ci"}, "scopes"),
        ("/admin/keys", {"name": "ci", "scope.runs:read": "on", "expires": "2001-01-01"}, "past"),
        ("/admin/keys", {"name": "ci", "scope.runs:read": "on", "expires": "soon"}, "expires_at"),
        ("/admin/keys", {"name": "ci", "scope.king": "on"}, "scopes"),
        ("/admin/keys/none/revoke", {}, "none"),
        ("/admin/project/limits", {"usd": "much"}, "usd"),
        ("/admin/project/defaults", {"defaults": "slack: x"}, "slack"),
        ("/admin/project/defaults", {"defaults": "a: ["}, "neither YAML nor JSON"),
        ("/admin/project/defaults", {"defaults": "secrets: {FLEET_API_KEY: gone}"}, "gone"),
        ("/admin/project/quotas", {"queued_runs": "-1"}, "queued_runs"),
    ],
)
def test_what_is_refused_says_why_on_its_page(
    browser: httpx.Client, served: Served, path: str, fields: dict[str, str], sentence: str
) -> None:
    tab = path.split("/")[2]
    answer = send(browser, path, tab, **fields)
    assert 400 <= answer.status_code < 500
    alert = re.search(r'role="alert"[^>]*>([^<]+)<', answer.text)
    assert alert is not None
    assert sentence in html.unescape(alert[1])
    assert audited(browser, served) == []


def test_the_audit_log_has_filters_and_pages(
    browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LIST_LIMIT", 3)
    for number in range(5):
        send(browser, "/admin/members", email=f"m{number}@example.org", role="viewer")
    page = browser.get("/admin/audit?route=/admin/members").text
    assert page.count("<code>POST /admin/members</code>") == 3
    older = html.unescape(re.search(r'rel="next" href="([^"]+)"', page)[1])  # type: ignore[index]
    assert "route=" in older
    assert browser.get(f"/admin/audit{older}").text.count("<code>POST /admin/members</code>") == 2
    one = browser.get("/admin/audit?target=m1@example.org").text
    assert one.count("<code>POST /admin/members</code>") == 1
    assert "No record matches." in browser.get("/admin/audit?until=2001-01-01").text
    assert "No record matches." in browser.get("/admin/audit?actor=nobody&since=nonsense").text


def test_who_is_no_admin_sees_no_form_and_changes_nothing(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    own = hidden(browser.get("/admin/keys").text, "token", "key")
    demote(story, served, "runs:read", "runs:write")
    for tab in ("members", "secrets", "project"):
        page = browser.get(f"/admin/{tab}")
        assert page.status_code == 200
        assert 'action="/admin' not in page.text
    for tab in ("keys", "audit"):
        assert browser.get(f"/admin/{tab}").status_code == 403
    for path, fields in FORMS:
        assert browser.post(path, data=own | fields).status_code == 403, path
    assert browser.get("/v1/members").json()["data"] == []


def test_quotas_are_the_operators(story: Story, served: Served, browser: httpx.Client) -> None:
    demote(story, served, "runs:read", "runs:write", "admin")
    assert "/admin/project/quotas" not in browser.get("/admin/project").text
    assert send(browser, "/admin/project/quotas", queued_runs="3").status_code == 403
    assert 'value="operator"' not in browser.get("/admin/keys").text
    made = send(browser, "/admin/keys", "keys", **{"name": "x", "scope.operator": "on"})
    assert made.status_code == 403


def test_a_form_of_another_site_changes_nothing(served: Served, browser: httpx.Client) -> None:
    for path, fields in FORMS:
        for token in ({}, {"token": "0" * 64}):
            assert browser.post(path, data=fields | token).status_code == 401, path
        with served.browser() as nobody:
            assert nobody.post(path, data=fields).headers["location"].startswith("/login")
    assert audited(browser, served) == []


def test_a_stranger_sees_and_changes_nothing_of_this_project(
    served: Served, browser: httpx.Client
) -> None:
    send(browser, "/admin/members", email="ada@example.org", role="viewer")
    send(browser, "/admin/secrets", name="crownjewel", value="a-secret-value")
    with served.client() as client:
        key = client.post("/v1/keys", json={"name": "ci", "scopes": ["runs:read"]}).json()
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        pages = "".join(text_of(stranger.get(f"/admin/{tab}").text) for tab in TABS)
        assert "ada@example.org" not in pages
        assert "crownjewel" not in pages
        assert send(stranger, "/admin/members/remove", email="ada@example.org").status_code == 404
        assert send(stranger, "/admin/secrets/delete", name="crownjewel").status_code == 404
        for action in ("rotate", "revoke"):
            assert send(stranger, f"/admin/keys/{key['id']}/{action}", "keys").status_code == 404
    assert len(browser.get("/v1/members").json()["data"]) == 1
    assert sign_in(served, browser).get("/admin").headers["location"] == "/admin/members"
