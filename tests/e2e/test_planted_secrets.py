"""Secrets of every kind are planted in a whole stack, used and refused; then they are looked for.

Everything that the servers at the other end say back repeats the headers that they were sent.
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from sqlalchemy import create_engine, text

from api.http.requests.permissions import PAGES, PERMISSIONS, Access
from api.tables import Base
from hillclimb.process.redactor import Redactor
from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import StackOptions
from hillclimb.stack.services import READ_BY
from hillclimb.stack.state.connection import connection
from hillclimb.stack.state.credentials import load_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.system.processes import owned_by
from tests.conformance.service import TRAINER_PYTHON
from tests.e2e.test_kill_matrix import Stack, model, short_spec

pytestmark = [pytest.mark.stack, pytest.mark.long]
__all__ = ["model"]

OWN_FILES = {
    "secrets.json": "the stack's own keys, by which it is started again",
    "valkey/valkey.conf": "Valkey reads its password there: a command line would show it",
}
"""Files that may have a secret, and why. Their folder is the owner's alone, and so are they."""
OF_A_TRAINER = frozenset({"HILLCLIMB_ATTEMPT_TOKEN", "WANDB_API_KEY", "RUN_SECRET_SHOP"})
"""Variables that a trainer may have a secret in."""


def canary(prefix: str = "") -> str:
    """Return a secret that nothing else contains: 40 characters behind the prefix, as W&B's."""
    return prefix + secrets.token_hex(20)


@dataclass
class Planted:
    """Secrets by what they are."""

    values: dict[str, str] = field(default_factory=dict)

    def plant(self, name: str, value: str) -> str:
        assert len(value) >= 12, name
        self.values[name] = value
        return value

    def within(self, content: bytes) -> list[str]:
        """Return the names of those that the content has, in any of the written forms."""
        everything = Redactor(tuple(self.values.values()))
        if everything.raw(content) == content:
            return []
        return [n for n, each in self.values.items() if Redactor((each,)).raw(content) != content]


@contextmanager
def echo_server() -> Iterator[str]:
    """Serve at a loopback address: whatever is asked for is refused, with the headers it came with.

    It stands for Slack, W&B, a provider of identities, a receiver of webhooks and an environment.
    """

    class Handler(BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = f"refused: {dict(self.headers.items())}".encode()
            self.send_response(401)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_GET(self) -> None:
            self._refuse()

        def do_POST(self) -> None:
            self._refuse()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with echo_server() as url:
        yield url


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, planted: Planted, echo: str) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("planted").resolve()
    options = StackOptions(state_dir=folder / "state", api_port=0, trainer_python=TRAINER_PYTHON)
    master = base64.b64encode(secrets.token_bytes(32)).decode()
    variables = {
        "OMP_NUM_THREADS": "1",
        "HILLCLIMB_MASTER_KEYS": f"m1:{planted.plant('master key', master)}",
        "HILLCLIMB_OIDC_ISSUER": echo,
        "HILLCLIMB_OIDC_CLIENT_ID": "hillclimb",
        "HILLCLIMB_OIDC_CLIENT_SECRET": planted.plant("OIDC client secret", canary()),
        "HILLCLIMB_METRICS_TOKEN": planted.plant("metrics token", canary()),
        "HILLCLIMB_WEBHOOK_LOOPBACK": "true",
        "SLACK_BOT_TOKEN": planted.plant("Slack bot token", canary("xoxb-")),
        "SLACK_APP_TOKEN": planted.plant("Slack app token", canary("xapp-")),
        "SLACK_SIGNING_SECRET": planted.plant("Slack signing secret", canary()),
        "SLACK_API_BASE_URL": f"{echo}/api",
        "HILLCLIMB_SLACK_CHANNEL": "#training",
        "WANDB_BASE_URL": echo,
        "AWS_SECRET_ACCESS_KEY": planted.plant("operator's S3 key", canary()),
        "AWS_ACCESS_KEY_ID": "AKIAOPERATOR00000000",
    }
    environment, lines = pytest.MonkeyPatch(), list[str]()
    for name, value in variables.items():
        environment.setenv(name, value)
    try:
        up_detached(options, say=lines.append)
        found = connection(options.state_dir)
        assert found is not None
        headers = {"Authorization": f"Bearer {found.api_key}"}
        with httpx.Client(base_url=found.url, headers=headers, trust_env=False, timeout=30) as http:
            yield Stack(options, found.url, http, found.api_key, log=lines)
    finally:
        environment.undo()
        down(options.state_dir, say=lines.append)
    assert list(owned_by(options.state_dir)) == []


def plant_own(stack: Stack, planted: Planted) -> None:
    """Plant what the stack made for itself."""
    credentials = load_credentials(StateDirectory(stack.options.state_dir))
    assert credentials is not None
    for name, value in credentials.model_dump().items():
        planted.plant(f"stack's {name}", value)
    url = process_of(stack, "api").environ()["DATABASE_URL"]
    planted.plant("database password of the services", str(urlsplit(url).password))


def plant_of_project(stack: Stack, planted: Planted, echo: str) -> None:
    """Plant what a project's admin, members and browsers have, and send some of it wrongly."""
    http = stack.http
    shop = {"value": planted.plant("environment's header", canary()), "hosts": ["127.0.0.1"]}
    assert http.put("/v1/secrets/shop", json=shop).is_success
    wandb = {"value": planted.plant("W&B key", canary())}
    assert http.put("/v1/secrets/wandb", json=wandb).is_success
    for body in (
        {"value": [planted.plant("value in a list", canary())]},
        {"value": planted.plant("value beside a wrong host", canary()), "hosts": ["NO HOST"]},
        {"valeu": planted.plant("value under a wrong key", canary())},
        {"value": planted.plant("value that is too long", canary()) * 1000},
    ):
        assert http.put("/v1/secrets/wrong", json=body).status_code == 422
    broken = f'{{"value": "{planted.plant("value in broken JSON", canary())}'
    assert http.put("/v1/secrets/wrong", content=broken).status_code == 400
    hook = http.post("/v1/webhooks", json={"url": f"{echo}/hook"}).json()
    planted.plant("webhook secret", hook["secret"])
    assert not http.post(f"/v1/webhooks/{hook['id']}/test").json()["delivered"]
    key = http.post("/v1/keys", json={"name": "ci", "scopes": ["runs:read"]}).json()
    planted.plant("API key", key["secret"])
    rotated = http.post(f"/v1/keys/{key['id']}/rotate", json={"grace_hours": 1}).json()
    planted.plant("rotated API key", rotated["secret"])
    agent = http.post("/v1/agent-keys", json={"name": "agent", "num_runs": 1}).json()
    planted.plant("agent key", agent["key"])
    planted.plant("Slack link code", http.post("/v1/slack/link-codes").json()["code"])
    wrong = planted.plant("wrong API key", canary("hc_"))
    for headers in ({"Authorization": f"Bearer {wrong}"}, {"Authorization": f"Basic {wrong}"}):
        assert httpx.get(f"{stack.url}/v1/runs", headers=headers).status_code == 401
    claim = {"attempt_id": "att_x", "code": canary("hcx_"), "nonce": "n" * 20}
    planted.plant("wrong bootstrap code", claim["code"])
    assert http.post("/v1/attempts/claim", json=claim).status_code == 401


def sign_in(stack: Stack, planted: Planted) -> httpx.Client:
    """Return a browser that signed in by a link; another one tried the provider and a wrong key."""
    code = planted.plant("sign-in code", stack.http.post("/v1/session-codes").json()["code"])
    browser = httpx.Client(base_url=stack.url, trust_env=False, timeout=30)
    assert browser.get("/login/oidc").status_code == 401, "the provider refuses"
    wrong = planted.plant("wrong key of a form", canary("hc_"))
    assert browser.post("/login", data={"key": wrong}).status_code == 401
    page = browser.get("/login", params={"code": code}).text
    token = page.split('name="token" value="', 1)[1].split('"', 1)[0]
    entered = browser.post("/login", data={"code": code, "token": token, "next": "/"})
    assert entered.status_code == 303, entered.text
    planted.plant("session cookie", browser.cookies["hillclimb_session"].strip('"'))
    return browser


def test_no_planted_secret_is_anywhere_but_where_it_must_be(
    stack: Stack, model: Path, planted: Planted, echo: str
) -> None:
    plant_own(stack, planted)
    plant_of_project(stack, planted, echo)
    browser = sign_in(stack, planted)
    wandb = {"wandb": {"mode": "online"}}
    schedule = {"total_steps": 3, "train_batch_size": 4, "mini_batch_size": 4}
    both = {"schedule": schedule, "experimental": True}
    stack.submit(model, secrets={"WANDB_API_KEY": "wandb"}, tracking=wandb, **both)
    trained = stack.run_id
    stack.until(stack.where(1).pid.exists)
    planted.plant("attempt token", stack.trainer(1).environ()["HILLCLIMB_ATTEMPT_TOKEN"])
    stack.until_step(1)
    found = in_processes(stack, planted)
    stack.until(lambda: stack.run()["status"] in ("succeeded", "failed"))
    assert stack.run()["status"] == "succeeded", stack.run()["end_reason"]
    server = {"url": echo, "headers": {"X-Token": "RUN_SECRET_SHOP"}}
    answer = stack.http.post(
        "/v1/runs",
        json=short_spec(model)
        | {
            "name": "refused",
            "data": {"env_keys": ["shop"], "train_tasks_per_env": 4, "eval_tasks_per_env": 2},
            "environment": {"provider": "openenv", "openenv": {"shop": server}},
            "secrets": {"RUN_SECRET_SHOP": "shop"},
        }
        | both,
    )
    assert answer.is_success, answer.text
    stack.run_id = refused = answer.json()["id"]
    stack.until(lambda: stack.run()["status"] == "failed")
    reason = stack.run()["end_reason"]["message"]
    assert "401" in reason, reason
    os.kill(process_of(stack, "api").pid, signal.SIGABRT)
    stack.until(lambda: stack.run()["status"] == "failed")
    found += [
        *in_answers(stack, planted, browser, (trained, refused)),
        *in_database(stack, planted),
        *in_files(stack.options.state_dir, planted),
    ]
    browser.close()
    assert found == []


def process_of(stack: Stack, name: str) -> psutil.Process:
    process = status(stack.options.state_dir).services[name].process
    assert process is not None
    return psutil.Process(process.pid)


def in_processes(stack: Stack, planted: Planted) -> list[str]:
    """Return command lines with a secret, and variables of processes that do not read it."""
    found: list[str] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = "\0".join(process.cmdline()).encode()
            found += [f"command line {process.name()}: {hit}" for hit in planted.within(line)]
    services = status(stack.options.state_dir).services
    names = {each.process.pid: name for name, each in services.items() if each.process}
    seen = set()
    for identity, command in owned_by(stack.options.state_dir):
        with suppress(psutil.Error):
            process = psutil.Process(identity.pid)
            family = (process, *process.parents())
            service = next((names[each.pid] for each in family if each.pid in names), "")
            environment = process.environ()
            may_have = allowed(service, environment, command)
            seen.add(service)
            for name in environment.keys() - may_have - {"AWS_SECRET_ACCESS_KEY"}:
                hits = planted.within(f"{name}={environment[name]}".encode())
                found += [f"variable {name} of {service or command}: {hit}" for hit in hits]
    # Of Celery nobody can read it any more: its processes write their titles over it.
    assert {"api", "runner", "slack", "postgres", "valkey"} <= seen, seen
    return found


def allowed(service: str, environment: Mapping[str, str], command: Sequence[str]) -> frozenset[str]:
    """Return the variables in which a process may have a secret.

    The S3 key is the operator's own, for a blob store there: services and trainers inherit it.
    """
    if "HILLCLIMB_ATTEMPT_TOKEN" in environment:
        return OF_A_TRAINER
    if not service and "hillclimb.stack" in command:
        return frozenset().union(*READ_BY.values())  # it starts the services
    return READ_BY.get(service, frozenset())


def in_answers(
    stack: Stack, planted: Planted, browser: httpx.Client, runs: tuple[str, ...]
) -> list[str]:
    """Return the routes whose answers to an operator, or to a browser, have a secret."""
    found, num_read = [], 0
    for row, access in PERMISSIONS.items():
        method, path = row.split(" ")
        if method != "GET" or path.endswith("/stream") or access in (Access.ATTEMPT, Access.RUNNER):
            continue
        for run_id in runs if "{run_id}" in path else ("",):
            place = path.replace("{run_id}", run_id).replace("{step}", "2")
            place = place.replace("{path:path}", "manifest.json").replace("{key_id}", "x")
            caller = browser if access in PAGES else stack.http
            answer = caller.get(place, params={} if access is not Access.PAGE else None)
            num_read += answer.is_success
            hits = planted.within(answer.content + str(answer.headers).encode())
            found += [f"GET {place}: {hit}" for hit in hits]
    assert num_read > 60, num_read
    return found


def in_database(stack: Stack, planted: Planted) -> list[str]:
    """Return tables and rows with a secret, of all columns."""
    found: list[str] = []
    engine = create_engine(process_of(stack, "api").environ()["DATABASE_URL"])
    with engine.connect() as session:
        for name in Base.metadata.tables:
            for row in session.execute(text(f"SELECT to_jsonb(t)::text FROM {name} t")).scalars():
                found += [f"table {name}: {hit}" for hit in planted.within(row.encode())]
        counts: dict[str, Any] = {
            name: session.scalar(text(f"SELECT count(*) FROM {name}"))
            for name in ("project_secrets", "audit_records", "events", "outcomes", "webhooks")
        }
    engine.dispose()
    assert all(counts.values()), counts
    return found


def in_files(state: Path, planted: Planted) -> list[str]:
    """Return files of the stack with a secret: logs, blobs, runs, the broker's, the database's."""
    found, read = [], set()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in state.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        name = path.relative_to(state).as_posix()
        try:
            content = path.read_bytes()
        except (OSError, PermissionError):
            continue
        read.add(name.partition("/")[0])
        if name in OWN_FILES:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, name
            continue
        found += [f"file {name}: {hit}" for hit in planted.within(content)]
    assert {"logs", "blobs", "runs", "valkey"} <= read, read
    return found
