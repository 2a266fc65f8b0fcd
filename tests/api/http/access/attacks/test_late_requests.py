"""A request that was begun with a valid key and is completed when the key is no more."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from api.http.dashboard.sessions import COOKIE, open_session
from api.http.requests.limits.late_bodies import LATE_S
from api.runs.journal import utc_now
from api.tables import Dataset, ProjectMember, Run
from api.tables.access.identity import principal_of_person
from api.tables.access.members import accept, set_member
from api.tables.access.roles import Role
from hillclimb.stack.system.poll import wait_until
from tests.api.fixtures.serving import SECRET, Served
from tests.api.fixtures.story import PROJECT, Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.fixtures.factories import spec_body

__all__ = ["blobs", "served", "story", "story_url"]
TASKS = b"\n".join(
    json.dumps({"task_key": f"t{i}", "prompt": "p", "env_key": "booking"}).encode()
    for i in range(20)
)
RUN = json.dumps(spec_body(name="late")).encode()
UPLOADS = {
    "/v1/runs": ("application/json", RUN),
    "/v1/keys": ("application/json", b'{"name": "late", "scopes": ["runs:read"]}'),
    "/v1/datasets/late/versions": ("application/x-ndjson", TASKS),
}


@dataclass
class SlowRequest:
    """A POST whose body has arrived but for its last byte."""

    connection: socket.socket
    rest: bytes

    @classmethod
    def begin(cls, served: Served, path: str, body: bytes, headers: str) -> SlowRequest:
        where = urlsplit(served.url)
        connection = socket.create_connection((str(where.hostname), where.port or 0), timeout=20)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:-1])
        return cls(connection, body[-1:])

    def complete(self) -> int:
        """Send the last byte; return the status of the answer."""
        self.connection.sendall(self.rest)
        answer = b""
        with self.connection as connection:
            while piece := connection.recv(65536):
                answer += piece
        return int(answer.split(b" ", 2)[1])


def wait_long() -> None:
    """Let the time pass after which the caller is looked up again."""
    time.sleep(LATE_S + 0.2)


def is_used(served: Served, key_id: str) -> bool:
    """Tell whether the service has admitted the key's request: it notes the time."""
    with served.client() as admin:
        rows = admin.get("/v1/keys").json()["data"]
    return any(row["id"] == key_id and row["last_used_at"] is not None for row in rows)


@pytest.mark.parametrize("path", UPLOADS)
def test_a_request_that_is_completed_after_its_key_was_revoked_changes_nothing(
    story: Story, served: Served, path: str
) -> None:
    kind, body = UPLOADS[path]
    with served.client() as admin:
        new = {"name": "thief", "scopes": ["runs:read", "runs:write", "admin"]}
        key = admin.post("/v1/keys", json=new).json()
        headers = f"Authorization: Bearer {key['secret']}\r\nContent-Type: {kind}"
        slow = SlowRequest.begin(served, path, body, headers)
        assert wait_until(lambda: is_used(served, key["id"]), deadline_s=20)
        admin.delete(f"/v1/keys/{key['id']}")
        wait_long()
        assert slow.complete() == 401
        names = [row["name"] for row in admin.get("/v1/keys").json()["data"]]
    assert "late" not in names
    with story.database.transaction() as session:
        assert session.query(Run).count() == 0
        assert session.query(Dataset).count() == 0


def test_a_slow_request_of_a_valid_key_is_served(story: Story, served: Served) -> None:
    headers = f"Authorization: Bearer {served.key}\r\nContent-Type: application/json"
    slow = SlowRequest.begin(served, "/v1/runs", RUN, headers)
    wait_long()
    assert slow.complete() == 201
    with story.database.transaction() as session:
        assert session.query(Run).one().name == "late"


def test_a_role_that_is_lowered_while_a_key_is_created_creates_none(
    story: Story, served: Served
) -> None:
    """A form of a page: a person in a browser was an admin when they began to send it."""
    with story.database.transaction() as session:
        _, person = set_member(session, PROJECT, "mallory@example.org", Role.ADMIN, actor="test")
        accept(session, PROJECT, person.id, now=utc_now())
        principal = principal_of_person(session, PROJECT, person.id)
        person_id = person.id
    cookie = open_session(principal, secret=SECRET, now=utc_now())
    with served.browser() as browser:
        browser.cookies.set(COOKIE, cookie)
        page = browser.get("/admin/keys").text
    token = page.split('name="token" value="', 1)[1].split('"', 1)[0]
    body = f"token={token}&name=late&scope.runs:read=on&key=k1".encode()
    headers = f"Cookie: {COOKIE}={cookie}\r\nContent-Type: application/x-www-form-urlencoded"
    slow = SlowRequest.begin(served, "/admin/keys", body, headers)
    wait_long()
    with story.database.transaction() as session:
        session.get_one(ProjectMember, (PROJECT, person_id)).role = Role.VIEWER.value
    assert slow.complete() == 403
    with served.client() as admin:
        assert "late" not in [row["name"] for row in admin.get("/v1/keys").json()["data"]]
