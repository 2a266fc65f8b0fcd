"""Streams and browser sessions end with the key that opened them."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from api.http.live.leases import INTERVAL_S
from api.runs.journal import utc_now
from api.tables import ApiKey
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
WAIT_S = 15.0


class Reading:
    """A stream that is read in a thread until the service ends it."""

    def __init__(self, served: Served, key: str, path: str) -> None:
        self.opened, self.text = threading.Event(), ""
        self.thread = threading.Thread(target=self._read, args=(served, key, path))
        self.thread.start()
        assert self.opened.wait(WAIT_S)

    def _read(self, served: Served, key: str, path: str) -> None:
        with served.client(key) as client, client.stream("GET", path) as response:
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


def test_the_session_cookie_is_secure_behind_a_proxy_with_https(
    story: Story, story_url: str, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    behind = serve(story_url, story.database, blobs, link_url="https://hc.example")
    with behind as it, it.browser() as browser:
        cookie = browser.post("/login", data={"key": it.key}).headers["set-cookie"].lower()
    assert "; secure" in cookie
    assert "httponly" in cookie
