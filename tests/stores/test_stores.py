"""Both stores keep the same promises; S3 runs against a local server."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from trainer.stores.base import BlobMissing, BlobStore, StoreError, StoreFull
from trainer.stores.disk import DiskStore
from trainer.stores.locate import open_store


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["disk", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    if request.param == "disk":
        return open_store(str(tmp_path / "blobs"))
    endpoint: str = request.getfixturevalue("s3_endpoint")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    bucket = f"b-{tmp_path.name.replace('_', '-').lower()}"[:60].strip("-")
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return open_store(f"s3://{bucket}/pre/fix?endpoint_url={endpoint}&region=us-east-1")


def test_what_is_put_is_got(store: BlobStore) -> None:
    store.put("a/b.txt", b"one")
    store.put("a/b.txt", b"two")
    assert store.get("a/b.txt") == b"two"
    assert store.exists("a/b.txt")
    assert not store.exists("a")


def test_a_missing_blob_is_said_to_be_missing(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobMissing):
        store.get("no/such")
    with pytest.raises(BlobMissing):
        store.get_file("no/such", tmp_path / "out")


def test_files_travel_both_ways(store: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "in.bin"
    source.write_bytes(bytes(range(256)) * 100)
    store.put_file("x/in.bin", source)
    store.get_file("x/in.bin", tmp_path / "deep" / "out.bin")
    assert (tmp_path / "deep" / "out.bin").read_bytes() == source.read_bytes()


def test_put_if_absent_stores_once(store: BlobStore) -> None:
    assert store.put_if_absent("m.json", b"first")
    assert not store.put_if_absent("m.json", b"second")
    assert store.get("m.json") == b"first"


def test_a_prefix_covers_whole_segments_only(store: BlobStore) -> None:
    for key in ("a/b/1", "a/b/2/3", "a/bc/4", "z"):
        store.put(key, b"")
    assert store.list("a/b") == ("a/b/1", "a/b/2/3")
    assert store.list("") == ("a/b/1", "a/b/2/3", "a/bc/4", "z")
    assert store.delete_prefix("a/b") == 2
    assert store.list("a") == ("a/bc/4",)
    assert store.delete_prefix("a/b") == 0


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", "a/./b"])
def test_a_key_that_leaves_the_store_is_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(StoreError):
        store.put(key, b"")
    with pytest.raises(StoreError):
        store.delete_prefix(key)


def test_of_several_writers_at_once_one_wins_on_disk(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    gate = threading.Barrier(8)

    def write(i: int) -> bool:
        gate.wait()
        return store.put_if_absent("m", str(i).encode())

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sum(won) == 1
    assert store.get("m") == str(won.index(True)).encode()
    assert store.list("") == ("m",)


def test_a_full_disk_is_told_apart_and_leaves_nothing_behind(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    store = DiskStore(tmp_path)

    def fill(part: Path) -> None:
        part.symlink_to(full)
        part.write_bytes(b"x")

    with pytest.raises(StoreFull):
        store._place("a/b", fill)
    assert store.list("") == ()
    assert list((tmp_path / "a").iterdir()) == []


def test_a_store_that_does_not_answer_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        store = open_store(f"s3://bucket/p?endpoint_url=http://127.0.0.1:{port}&region=us-east-1")
        with pytest.raises(StoreError):
            store.get("a")


def test_an_address_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}").local_path("a") == tmp_path / "a"
    with pytest.raises(StoreError, match="unknown kind"):
        open_store("ftp://host/dir")
