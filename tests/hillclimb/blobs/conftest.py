"""The servers of this folder's tests: one of each per module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from tests.hillclimb.blobs.servers import (
    BUCKET,
    KEY,
    MANY,
    NUM_MANY,
    SECRET,
    make_client,
    serve_rclone,
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those the servers know, as users give them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """Address of a service with conditional writes that checks no signature."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    make_client(f"http://{host}:{port}").create_bucket(Bucket=BUCKET)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a service that checks signatures and knows no conditional writes."""
    root = tmp_path_factory.mktemp("buckets")
    (root / BUCKET / MANY).mkdir(parents=True)
    for number in range(NUM_MANY):
        (root / BUCKET / MANY / f"{number:04d}").touch()
    with serve_rclone(root) as address:
        yield address


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A prefix of the test's own."""
    return f"{tmp_path.parent.name}/{tmp_path.name}"
