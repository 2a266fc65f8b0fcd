"""Streams and browser sessions end with the key that opened them."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from api.http.dashboard.sessions import COOKIE, open_session
from api.http.live.leases import INTERVAL_S
from api.runs.journal import utc_now
from api.tables import ApiKey
from api.tables.access.identity import principal_of_person
from api.tables.access.members import set_member
from api.tables.access.roles import Role
from tests.api.fixtures.serving import SECRET, Served, serve
from tests.api.fixtures.story import PROJECT, Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
WAIT_S = 15.0


class Reading:
    """A stream that is read in a thread until the service ends it."""

    def __init__(self, served: Served, key: str, path: str, *, cookie: str = "") -> None:
        self.opened, self.text = threading.Event(), ""
        http = served.browser() if cookie else served.client(key)
        if cookie:
            http.cookies.set(COOKIE, cookie)
        self.thread = threading.Thread(target=self._read, args=(http, path))
        self.thread.start()
        assert self.opened.wait(WAIT_S)

    def _read(self, http: httpx.Client, path: str) -> None:
        with http as client, client.stream("GET", path) as response:
            for text in response.iter_text():
                self.text += text
                self.opened.set()

    def ends(self, within_s: float) -> bool:
        self.thread.join(within_s)
        return not self.thread.is_alive()


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_stream_ends_when_its_key_does_and_others_go_on(
    story: Story, served: Served, how: str
) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with served.client() as admin:
        created = admin.post("/v1/keys", json={"name": "tv", "scopes": ["runs:read"]}).json()
        stream = Reading(served, created["secret"], path)
        other = Reading(served, served.key, path)
        assert not stream.ends(2 * INTERVAL_S)
        if how == "revoked":
            admin.delete(f"/v1/keys/{created['id']}")
        else:
            with story.database.transaction() as session:
                session.get_one(ApiKey, created["id"]).expires_at = utc_now()
        assert stream.ends(WAIT_S)
        assert "event: end" not in stream.text
        with served.client(created["secret"]) as refused:
            assert refused.get(path).status_code == 401
    assert not other.ends(0.1)
    story.finish(run_id, 40)
    assert other.ends(WAIT_S)
    assert "event: end" in other.text


def test_a_browser_session_ends_with_its_key(story: Story, served: Served) -> None:
    with served.client() as admin, served.browser() as browser:
        created = admin.post("/v1/keys", json={"name": "tv", "scopes": ["runs:read"]}).json()
        browser.post("/login", data={"key": created["secret"], "next": "/"})
        assert browser.get("/").status_code == 200
        soon = utc_now() + timedelta(seconds=0.3)
        with story.database.transaction() as session:
            session.get_one(ApiKey, created["id"]).expires_at = soon
        time.sleep(0.4)
        ended: httpx.Response = browser.get("/")
        assert (ended.status_code, ended.headers["location"]) == (303, "/login?next=/")
        assert browser.get("/v1/runs").status_code == 401


@pytest.mark.parametrize("is_person", [False, True], ids=["key", "person"])
def test_signing_out_ends_the_session_and_its_streams_on_the_server(
    story: Story, served: Served, is_person: bool
) -> None:
    """Somebody who copied the cookie has it for twelve hours else."""
    run_id = story.running()
    with served.client() as admin, served.browser() as browser, served.browser() as thief:
        created = admin.post("/v1/keys", json={"name": "tv", "scopes": ["runs:read"]}).json()
        other = admin.post("/v1/keys", json={"name": "other", "scopes": ["runs:read"]}).json()
        if is_person:
            cookie = session_of_person(story)
            browser.cookies.set(COOKIE, cookie)
        else:
            browser.post("/login", data={"key": created["secret"]})
            cookie = browser.cookies[COOKIE]
        thief.cookies.set(COOKIE, cookie)
        with served.browser() as second:
            second.post("/login", data={"key": other["secret"]})
            assert thief.get("/v1/runs").status_code == 200
            stream = Reading(served, "", f"/v1/runs/{run_id}/events/stream", cookie=cookie)
            browser.post("/logout")
            assert thief.get("/v1/runs").status_code == 401
            assert thief.get("/").status_code == 303
            assert stream.ends(WAIT_S)
            assert "event: end" not in stream.text
            assert second.get("/v1/runs").status_code == 200
        with served.client(created["secret"]) as client:
            assert client.get("/v1/runs").status_code == 200


def session_of_person(story: Story) -> str:
    """Return the cookie of a member of the project."""
    with story.database.transaction() as session:
        member, person = set_member(session, PROJECT, "ada@example.org", Role.VIEWER, actor="t")
        member.accepted_at = utc_now()
        session.flush()
        principal = principal_of_person(session, PROJECT, person.id)
    return open_session(principal, secret=SECRET, now=utc_now())


def test_signing_in_and_out_is_in_the_audit_log(story: Story, served: Served) -> None:
    with served.client() as admin, served.browser() as browser:
        created = admin.post("/v1/keys", json={"name": "tv", "scopes": ["runs:read"]}).json()
        browser.post("/login", data={"key": created["secret"]})
        browser.post("/logout")
        with served.client(created["secret"]) as client:
            client.post("/v1/session-codes")
        data = admin.get("/v1/audit", params={"actor": "key:tv"}).json()["data"]
    routes = [each["route"] for each in data]
    assert routes == ["POST /v1/session-codes", "POST /logout", "POST /login"]
    assert {each["target"] for each in data} == {created["id"]}
    out, entered = data[1]["changes"][0], data[2]["changes"][0]
    assert (entered["action"], entered["after"]) == ("created", {"address": "127.0.0.1"})
    assert (out["action"], out["before"]) == ("deleted", {"address": "127.0.0.1"})


def test_the_session_cookie_is_secure_behind_a_proxy_with_https(
    story: Story, story_url: str, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    behind = serve(story_url, story.database, blobs, link_url="https://hc.example")
    with behind as it, it.browser() as browser:
        cookie = browser.post("/login", data={"key": it.key}).headers["set-cookie"].lower()
    assert "; secure" in cookie
    assert "httponly" in cookie
