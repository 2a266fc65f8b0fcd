"""Two API processes behind one address act as one, whichever of them accepts a connection."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.http.dashboard.sessions import COOKIE
from api.http.live.leases import INTERVAL_S
from api.http.live.serving.processes import STARTUP_FAILURE
from api.http.requests.limits.rates import BURST_S
from api.http.slack.processing import PERIOD_S
from api.runs.journal import utc_now
from api.tables.access.members import accept, set_member
from api.tables.access.roles import Role
from api.tables.database import Database
from hillclimb.client.client import Client
from hillclimb.protocol.events import IngestBatch
from hillclimb.stack.state.connection import Connection
from hillclimb.stack.system.poll import wait_until
from tests.api.fixtures.serving import make_key
from tests.api.fixtures.story import PROJECT, Story
from tests.api.http.access.provider import CLIENT_ID, CLIENT_SECRET, OidcServer, serve_provider
from tests.api.http.live.serving.two import METRICS_TOKEN, TwoProcesses, two_processes
from tests.fixtures.fake_slack import (
    SIGNING_SECRET,
    TOKEN,
    FakeSlack,
    command,
    run_fake_slack,
    sign,
)
from tests.fixtures.migrated import as_service, migrate

pytestmark = pytest.mark.long
RATE, WRONG = 1_200, 12


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    with serve_provider() as server:
        yield server


@pytest.fixture(scope="module")
def slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        yield fake


@pytest.fixture(scope="module")
def url(make_database: Callable[..., str]) -> str:
    owner = make_database()
    migrate(owner)
    return as_service(owner)


@pytest.fixture(scope="module")
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


@pytest.fixture(scope="module")
def two(
    url: str,
    redis_url: str,
    provider: OidcServer,
    slack: FakeSlack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TwoProcesses]:
    more = {
        "HILLCLIMB_REQUESTS_PER_MINUTE": str(RATE),
        "HILLCLIMB_WRONG_KEYS_PER_MINUTE": str(WRONG),
        "HILLCLIMB_OIDC_ISSUER": provider.issuer,
        "HILLCLIMB_OIDC_CLIENT_ID": CLIENT_ID,
        "HILLCLIMB_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_BOT_TOKEN": TOKEN,
        "SLACK_API_BASE_URL": slack.base_url,
    }
    with two_processes(url, redis_url, tmp_path_factory.mktemp("two"), **more) as running:
        running.both()
        yield running


@pytest.fixture
def story(database: Database, two: TwoProcesses) -> Story:
    told = Story(database)
    told.prepare()
    return told


@pytest.fixture
def key(story: Story) -> str:
    """Of an admin of the story's project."""
    return make_key(story.database, PROJECT)


class Follower(threading.Thread):
    """Follows a run with our client until its end, through whatever happens to its stream."""

    def __init__(self, two: TwoProcesses, run_id: str, key: str) -> None:
        super().__init__()
        self.seqs: list[int] = []
        self._client, self._run_id = Client(Connection(url=two.url, api_key=key)), run_id
        self.start()

    def run(self) -> None:
        with self._client:
            for event in self._client.follow(self._run_id):
                self.seqs.append(event.seq)


class Reading(threading.Thread):
    """One stream of one process, read until the process ends it."""

    def __init__(self, client: httpx.Client, run_id: str) -> None:
        super().__init__()
        self.seqs: list[int] = []
        self.ended_at = 0.0
        self._client, self._path = client, f"/v1/runs/{run_id}/events/stream"
        self.start()

    def run(self) -> None:
        with self._client.stream("GET", self._path) as response:
            for line in response.iter_lines():
                if line.startswith("id: "):
                    self.seqs.append(int(line[4:]))
        self.ended_at = time.monotonic()


def ingest(client: httpx.Client, story: Story, run_id: str, step: int) -> None:
    batch = IngestBatch(events=(story.phase(run_id, step, "rollout"),))
    headers = {"Authorization": f"Bearer {story.plans[run_id].attempt_token}"}
    answer = client.post("/v1/ingest", content=batch.model_dump_json(), headers=headers)
    assert answer.status_code == 200, answer.text


def seqs_of(client: httpx.Client, run_id: str) -> list[int]:
    data = client.get(f"/v1/runs/{run_id}/events", params={"limit": 500}).json()["data"]
    return [event["seq"] for event in data]


def test_streams_of_both_get_every_event_whichever_process_ingested_it(
    two: TwoProcesses, story: Story, key: str
) -> None:
    run_id = story.running()
    streams = [Reading(client, run_id) for client in two.both(key)]
    ingesting = two.both()
    for step in range(1, 31):
        ingest(ingesting[step % 2], story, run_id, step)
    story.finish(run_id, 30)
    for stream in streams:
        stream.join(20)
        assert stream.seqs == seqs_of(two.client(two.pids()[0], key), run_id)
        assert len(stream.seqs) > 30


def test_a_key_that_one_process_revokes_ends_the_streams_of_the_other_within_seconds(
    two: TwoProcesses, story: Story, key: str
) -> None:
    run_id = story.running()
    here, there = two.both(key)
    made = here.post("/v1/keys", json={"name": "tv", "scopes": ["runs:read"]}).json()
    stream = Reading(two.client(two.pids()[1], made["secret"]), run_id)
    assert wait_until(lambda: bool(stream.seqs), deadline_s=10)
    begun = time.monotonic()
    assert here.delete(f"/v1/keys/{made['id']}").is_success
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert there.get("/v1/whoami", headers=headers).status_code == 401
    stream.join(20)
    assert 0 < stream.ended_at - begun < INTERVAL_S + 1.0
    story.finish(run_id, 1)


def test_a_key_has_one_rate_for_both(two: TwoProcesses, key: str) -> None:
    def send(client: httpx.Client) -> int:
        return sum(client.get("/v1/whoami").status_code == 200 for _ in range(400))

    clients = two.both(key)
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        accepted = sum(pool.map(send, clients))
    burst, per_s = RATE * BURST_S / 60, RATE / 60
    most = burst + per_s * (time.monotonic() - begun) + 1
    assert burst <= accepted <= most
    assert accepted < 800


def test_an_address_has_one_number_of_wrong_keys_for_both(two: TwoProcesses) -> None:
    address = {"X-Forwarded-For": "192.0.2.7"}
    clients = two.both("")
    statuses, begun = [], time.monotonic()
    for number in range(2 * WRONG):
        guess = {"Authorization": f"Bearer hc_{number:061x}"}
        for client in clients:
            statuses.append(client.get("/v1/whoami", headers=address | guess).status_code)
    more = (time.monotonic() - begun) * WRONG / 60
    assert set(statuses) == {401, 429}
    assert WRONG <= statuses.count(401) <= WRONG + more + 1


def test_a_link_that_one_process_made_signs_in_at_the_other_once(
    two: TwoProcesses, key: str
) -> None:
    here, there = two.both(key)
    code = here.post("/v1/session-codes").json()["code"]
    for client in (here, there):
        del client.headers["Authorization"]
    page = there.get(f"/login?code={code}").text
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    here.cookies = there.cookies
    form = {"code": code, "token": token[1], "next": "/"}
    assert here.post("/login", data=form).status_code == 303
    assert there.post("/login", data=form).status_code == 401
    there.cookies.set(COOKIE, here.cookies[COOKIE])
    assert there.get("/v1/whoami").status_code == 200


def test_a_sign_in_that_one_process_began_ends_at_the_other(
    two: TwoProcesses, story: Story
) -> None:
    with story.database.transaction() as session:
        _, person = set_member(session, PROJECT, "ada@example.org", Role.MEMBER, actor="test")
        accept(session, PROJECT, person.id, now=utc_now())
    here, there = two.both("")
    begun = here.get("/login/oidc")
    assert begun.status_code == 303, begun.text
    allowed = httpx.get(begun.headers["location"])
    back = allowed.headers["location"].removeprefix(two.url)
    there.cookies = here.cookies
    assert there.get(back).status_code == 200
    here.cookies.set(COOKIE, there.cookies[COOKIE])
    assert here.get("/v1/whoami").json()["actor"] == "person:ada@example.org"


def test_a_request_of_slack_that_reaches_both_is_answered_once(
    two: TwoProcesses, slack: FakeSlack
) -> None:
    def send(number: int, client: httpx.Client) -> None:
        request = requests[number]
        client.post("/v1/slack/commands", content=request.body, headers=request.headers)

    requests = [sign(command(f"help {number}", slack=slack)) for number in range(5)]
    with ThreadPoolExecutor(4) as pool:
        for client in two.both(""):
            for number in range(5):
                pool.submit(send, number, client)
    assert wait_until(lambda: len(slack.whispers) >= 5, deadline_s=20)
    # Two rounds of the loop in which each process looks for requests that were left behind.
    assert not wait_until(lambda: len(slack.whispers) > 5, deadline_s=2 * PERIOD_S)


def test_prometheus_reads_the_requests_of_both_from_either(two: TwoProcesses) -> None:
    def count(client: httpx.Client) -> float:
        text = client.get("/metrics").text
        name = "hillclimb_http_request_duration_seconds_count"
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and sample.labels["route"] == "/v1/health/ready"
        )

    here, there = two.both(METRICS_TOKEN)
    before = count(here)
    for _ in range(3):
        here.get("/v1/health/ready")
        there.get("/v1/health/ready")
    assert (count(here), count(there)) == (before + 6, before + 6)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_clients_go_on_when_one_process_dies_or_hangs_and_it_is_replaced(
    two: TwoProcesses, story: Story, key: str, how: signal.Signals
) -> None:
    run_id = story.running()
    followers = [Follower(two, run_id, key) for _ in range(6)]
    assert wait_until(lambda: all(each.seqs for each in followers), deadline_s=20)
    victim, other = two.pids()
    psutil.Process(victim).send_signal(how)
    client = two.client(other)
    for step in range(1, 11):
        ingest(client, story, run_id, step)
    assert wait_until(lambda: len(set(two.pids()) - {victim}) == 2, deadline_s=40)
    ingest(two.both()[1], story, run_id, 11)
    story.finish(run_id, 11)
    for follower in followers:
        follower.join(40)
        assert follower.seqs == seqs_of(two.browser(key), run_id)


def test_no_process_outlives_the_parent_and_the_address_is_free_at_once(
    url: str, redis_url: str, tmp_path: Path
) -> None:
    with two_processes(url, redis_url, tmp_path) as doomed:
        doomed.both()
        pids = doomed.pids()
        doomed.parent.kill()
        assert wait_until(lambda: not any(map(psutil.pid_exists, pids)), deadline_s=20)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", doomed.port))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_service_that_is_stopped_leaves_no_semaphore_behind(
    url: str, redis_url: str, tmp_path: Path, num_processes: int
) -> None:
    """Also where its group is killed as soon as it has ended, as the stack's supervisor does."""
    more = {"HILLCLIMB_API_PROCESSES": str(num_processes)}
    with two_processes(url, redis_url, tmp_path, **more) as stopped:
        assert wait_until(stopped.is_ready, deadline_s=60.0), stopped.log.read_text()
        semaphores = semaphores_of(stopped.parent.pid)
        assert bool(semaphores) == (num_processes > 1)
        stopped.parent.terminate()
        stopped.parent.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(stopped.parent.pid, signal.SIGKILL)
    assert semaphores.isdisjoint(each.inode() for each in os.scandir("/dev/shm"))


def semaphores_of(pid: int) -> set[int]:
    """Return the inodes in /dev/shm of the semaphores that a process has mapped."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {int(each[4]) for each in lines if each[5:] and each[5].startswith("/dev/shm/sem.")}


def test_an_application_that_cannot_start_ends_the_parent_with_its_reason(
    redis_url: str, tmp_path: Path
) -> None:
    nowhere = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    with two_processes(nowhere, redis_url, tmp_path) as two:
        assert two.parent.wait(150) == STARTUP_FAILURE  # 15 s of CPU
        assert "connection refused" in two.log.read_text().lower()
        assert not two.shared.exists()
