"""All stores keep the same promises; S3 runs against real servers on loopback."""

import errno
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError, StoreFull, StoreRefused
from hillclimb.blobs.disk import DiskStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.s3.parts import PART_BYTES
from tests.hillclimb.blobs.servers import BUCKET, REGION


@pytest.fixture(params=["disk", "moto", "rclone"])
def store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> BlobStore:
    if request.param == "disk":
        return open_store(str(tmp_path / "blobs"))
    service = request.getfixturevalue(request.param)
    return open_store(f"s3://{BUCKET}/{prefix}?endpoint_url={service}&region={REGION}")


@pytest.fixture(params=["disk", "moto"])
def fair_store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> BlobStore:
    """A store in which one of two writers wins."""
    if request.param == "disk":
        return open_store(str(tmp_path / "blobs"))
    service = request.getfixturevalue(request.param)
    return open_store(f"s3://{BUCKET}/{prefix}?endpoint_url={service}&region={REGION}")


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


def test_put_if_absent_stores_once(fair_store: BlobStore) -> None:
    store = fair_store
    store.check()
    assert store.put_if_absent("m.json", b"first")
    assert not store.put_if_absent("m.json", b"second")
    assert store.get("m.json") == b"first"


def test_a_prefix_covers_whole_segments_only(store: BlobStore) -> None:
    for size, key in enumerate(("a/b/1", "a/b/2/3", "a/bc/4", "z")):
        store.put(key, b"x" * size)
    assert store.list("a/b") == ("a/b/1", "a/b/2/3")
    assert list(store.sizes("a/b").items()) == [("a/b/1", 0), ("a/b/2/3", 1)]
    assert list(store.sizes("").items())[2:] == [("a/bc/4", 2), ("z", 3)]
    assert store.list("") == ("a/b/1", "a/b/2/3", "a/bc/4", "z")
    assert store.delete_prefix("a/b") == 2
    assert store.list("a") == ("a/bc/4",)
    assert store.delete_prefix("a/b") == 0


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", "a/./b", "a\nb", "a\\b"])
def test_a_key_that_leaves_the_store_is_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(StoreError):
        store.put(key, b"")
    with pytest.raises(StoreError):
        store.delete_prefix(key)


def test_of_several_writers_at_once_one_wins(fair_store: BlobStore) -> None:
    fair_store.check()
    gate = threading.Barrier(8)

    def write(i: int) -> bool:
        gate.wait()
        return fair_store.put_if_absent("m", str(i).encode())

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sum(won) == 1
    assert fair_store.get("m") == str(won.index(True)).encode()
    assert fair_store.list("") == ("m",)


def test_a_range_is_what_is_there_of_it(store: BlobStore) -> None:
    store.put("r", b"0123456789")
    assert store.size("r") == 10
    assert store.get_range("r", 2, 3) == b"234"
    assert store.get_range("r", 8, 100) == b"89"
    assert store.get_range("r", 10, 1) == b""
    assert store.get_range("r", 3, 0) == b""
    for length in (1, 0):
        with pytest.raises(BlobMissing, match="no blob 'no'"):
            store.get_range("no", 0, length)
    with pytest.raises(BlobMissing):
        store.size("no")


def test_a_large_file_travels_in_parts_and_whole(store: BlobStore, tmp_path: Path) -> None:
    content = random.Random(0).randbytes(2 * PART_BYTES + 12_345)
    (tmp_path / "large").write_bytes(content)
    store.put_file("x/large", tmp_path / "large")
    assert store.size("x/large") == len(content)
    store.get_file("x/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert sorted(path.name for path in tmp_path.glob("*") if path.is_file()) == ["back", "large"]


@pytest.mark.parametrize("content", [b"", b"x"])
def test_a_tiny_file_travels_too(store: BlobStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tiny").write_bytes(content)
    store.put_file("tiny", tmp_path / "tiny")
    store.get_file("tiny", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


ODD_KEYS = (
    *("a b", "a+b", "a%20b", "a%2Fb", "ä/ö 漢", "a?b#c&d=e", 'it\'s "so"', "~!*()'", "a:b;c,d@e$f"),
    *("<a>&amp;</a>", "trailing ", ".hidden", "-", "C=1/D=2"),
)


def test_keys_with_odd_characters_are_kept(store: BlobStore) -> None:
    for key in ODD_KEYS:
        store.put(key, key.encode())
    assert store.list("") == tuple(sorted(ODD_KEYS))
    assert all(store.get(key) == key.encode() for key in ODD_KEYS)
    for key in ODD_KEYS:
        assert store.delete_prefix(key) == 1
    assert store.list("") == ()


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


def test_an_address_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}").local_path("a") == tmp_path / "a"
    with pytest.raises(StoreError, match="unknown kind"):
        open_store("ftp://host/dir")
    with pytest.raises(StoreRefused, match="'endpont_url' is no setting of an S3 address"):
        open_store("s3://bucket/p?endpont_url=http://127.0.0.1:1")
    with pytest.raises(StoreRefused, match="no address of a service"):
        open_store("s3://bucket/p?endpoint_url=nonsense")


def test_a_directory_has_no_addresses_for_others(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("a", b"1")
    assert store.presign("a", method="GET", expires_s=60) is None
    assert store.presign("a", method="PUT", expires_s=60) is None


def test_a_directory_that_cannot_be_written_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="choose another directory for the store"):
        DiskStore(tmp_path / "file" / "blobs").check()
    DiskStore(tmp_path / "blobs").check()
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_directory_without_hard_links_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(StoreRefused, match=r"no hard link can be made .* not permitted"):
        DiskStore(tmp_path / "blobs").check()
    assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.parametrize(("number", "kind"), [("ENOSPC", StoreFull), ("EIO", StoreError)])
@pytest.mark.parametrize("place", ["touch", "hardlink_to"])
def test_a_fault_of_the_moment_is_no_refusal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: str,
    kind: type[StoreError],
    place: str,
) -> None:
    """An attempt begins all the same, and does not end its run for good."""

    def fail(*_: object) -> None:
        raise OSError(getattr(errno, number), "not now")

    monkeypatch.setattr(Path, place, fail)
    with pytest.raises(StoreError, match="not now") as found:
        DiskStore(tmp_path / "blobs").check()
    assert type(found.value) is kind


def test_what_is_deleted_while_a_directory_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scandir = DiskStore(tmp_path), os.scandir
    for key in ("c/1/x", "c/2/x", "c/3/x"):
        store.put(key, b"")

    listed_first: list[str] = []

    def scan(path: str | Path) -> object:
        if Path(path).parent.name == "c" and not listed_first:
            listed_first.append(Path(path).name)
            for other in {"1", "2", "3"} - set(listed_first):
                (tmp_path / "c" / other / "x").unlink()
                (tmp_path / "c" / other).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert store.list("c") == (f"c/{listed_first[0]}/x",)


def test_a_directory_that_cannot_be_listed_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        DiskStore(tmp_path).list("c")


@pytest.mark.parametrize("ask", [lambda s: s.exists("c"), lambda s: s.list("c")])
def test_a_mount_that_went_stale_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[DiskStore], object]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(StoreError, match="Stale file handle"):
        ask(DiskStore(tmp_path))
