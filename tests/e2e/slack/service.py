"""The API and the process of Socket Mode as processes, and the worker's tasks every moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.settings import Settings
from api.tables.database import Database
from hillclimb.stack.options import CODE_ROOT
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures.fake_slack import APP_TOKEN, SIGNING_SECRET, TOKEN, FakeSlack
from tests.fixtures.fake_socket import FakeSocket
from tests.fixtures.postgres import launch
from worker import tasks
from worker.context import make_context

KEY = "hc_" + "e" * 61
START_S = 90.0
BOT = (sys.executable, "-m", "api.http.slack.socket_mode")


@dataclass(slots=True)
class SlackService:
    """Addresses and processes of the service."""

    settings: Settings
    slack: FakeSlack
    socket: FakeSocket
    database: Database
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    num_bots: int = 0

    @property
    def url(self) -> str:
        return self.settings.public_url

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    def start(self, name: str, command: tuple[str, ...]) -> None:
        before = os.environ.copy()
        os.environ.update(environment(self.settings))
        try:
            process = launch(command, cwd=CODE_ROOT, log=self.folder / f"{name}.log")
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.processes[name] = process

    def start_bot(self) -> None:
        """Start the process of Socket Mode, and wait until it is connected."""
        self.num_bots += 1
        self.start(f"bot-{self.num_bots}", BOT)
        self.socket.wait_for_connection(deadline_s=START_S)

    def kill_bot(self) -> None:
        """End it without a chance to say anything; returns when its connection is gone."""
        process = self.processes[f"bot-{self.num_bots}"]
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        self.until(lambda: not self.socket.connections)

    def until(self, condition: Callable[[], bool], *, deadline_s: float = 60.0) -> None:
        if not wait_until(condition, deadline_s=deadline_s):
            logs = [f"== {each.name}\n{each.read_text()[-3000:]}" for each in self.logs()]
            raise AssertionError("\n".join(logs))

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))


def environment(settings: Settings) -> dict[str, str]:
    """Return the settings as the variables that name them."""
    found = {}
    for name, info in type(settings).model_fields.items():
        value: Any = getattr(settings, name)
        secret = getattr(value, "get_secret_value", None)
        if value is not None and info.alias is not None:
            found[info.alias] = str(secret() if secret else value)
    return found


def settings_of(
    database_url: str, redis_url: str, folder: Path, slack: FakeSlack, port: int
) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "redis_url": redis_url,
            "blobs_url": str(folder / "blobs"),
            "public_url": f"http://127.0.0.1:{port}",
            "secret_key": "for the conversation only",
            "bootstrap_key": KEY,
            "clouds": "skypilot",
            "node_api_url": "https://api.example",
            "node_blobs_url": "s3://blobs/nodes",
            "slack_bot_token": TOKEN,
            "slack_app_token": APP_TOKEN,
            "slack_signing_secret": SIGNING_SECRET,
            "slack_api_base_url": slack.base_url,
            "slack_channel": "#fleet-training-runs",
        }
    )


@contextmanager
def running_service(
    database_url: str,
    redis_url: str,
    folder: Path,
    slack: FakeSlack,
    socket: FakeSocket,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SlackService]:
    """Yield the service; the worker's own tasks run in this process."""
    port = find_free()
    settings = settings_of(database_url, redis_url, folder, slack, port)
    context = make_context(settings.model_copy(update={"clouds": ""}))
    monkeypatch.setattr(tasks, "load_context", lambda: context)
    service = SlackService(settings, slack, socket, context.database, folder)
    stopping = threading.Event()
    faults: list[Exception] = []
    worker = threading.Thread(target=_work, args=(stopping, faults))
    api = ("-m", "uvicorn", "api.app:create_app", "--factory", "--host", "127.0.0.1")
    try:
        service.start("api", (sys.executable, *api, "--port", str(port)))
        service.start_bot()
        service.until(lambda: _is_up(service), deadline_s=START_S)
        worker.start()
        yield service
    finally:
        stopping.set()
        if worker.ident is not None:
            worker.join(30)
        for process in service.processes.values():
            process.kill()
            process.wait(20)
        context.database.close()
    assert faults == []


def _work(stopping: threading.Event, faults: list[Exception]) -> None:
    while not stopping.wait(0.3):
        try:
            tasks.deliver_messages()
            tasks.watch_budgets()
        except Exception as error:  # noqa: BLE001 - kept for the test, which must see it
            faults.append(error)
            return


def _is_up(service: SlackService) -> bool:
    try:
        return httpx.get(f"{service.url}/v1/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False
