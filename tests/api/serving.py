"""The real application under a real uvicorn on a free loopback port."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from pydantic import SecretStr

from api.database import Database
from api.identity import USER_SCOPES, new_key
from api.settings import Settings
from api.tables import ApiKey, Project
from tests.api.application import make_application
from tests.api.story import PROJECT

SECRET = "a-secret-for-tests-that-is-long-enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where the application is and keys of two projects."""

    url: str
    key: str
    stranger_key: str
    server: uvicorn.Server

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20)

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20)


class _SilentBell:
    """Nobody waits for these rings."""

    def ring(self, run_ids: Iterable[str]) -> None:
        pass

    def check(self) -> None:
        pass


def make_key(database: Database, project_id: str) -> str:
    key = new_key()
    with database.transaction() as session:
        session.merge(Project(id=project_id, name=project_id))
        session.flush()
        session.add(
            ApiKey(
                id=f"key_{key[-8:]}",
                project_id=project_id,
                name="test",
                prefix=key[:12],
                sha256=hashlib.sha256(key.encode()).hexdigest(),
                scopes=[scope.value for scope in USER_SCOPES],
            )
        )
    return key


@contextmanager
def serve(database_url: str, database: Database, blobs: Path | str) -> Iterator[Served]:
    settings = Settings(
        database_url=database_url,
        redis_url="redis://127.0.0.1:1",
        blobs_url=str(blobs),
        secret_key=SecretStr(SECRET),
        clouds="skypilot",
        node_api_url="https://api.example",
        node_blobs_url="s3://blobs/nodes",
    )
    app = make_application(settings, _SilentBell())
    config = uvicorn.Config(
        app, port=0, log_level="warning", timeout_graceful_shutdown=2, ws="none", lifespan="on"
    )
    server = uvicorn.Server(config)
    ready = threading.Event()
    startup = server.startup

    async def announced(*args: object, **kwargs: object) -> None:
        await startup(*args, **kwargs)  # type: ignore[arg-type]
        ready.set()

    server.startup = announced  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    if not ready.wait(20):
        raise RuntimeError("the application did not start")
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(
            url=f"http://127.0.0.1:{port}",
            key=make_key(database, PROJECT),
            stranger_key=make_key(database, "prj_stranger"),
            server=server,
        )
    finally:
        # Streams that a test left open would keep the server: it cancels them after the grace.
        server.should_exit = True
        thread.join()
