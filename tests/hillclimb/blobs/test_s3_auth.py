"""Credentials, signatures, addresses for others, and set-ups that a sentence explains.

Against a server that checks every signature.
"""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from hillclimb.blobs.base import BlobStore, StoreRefused
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from tests.hillclimb.blobs.servers import BUCKET, MANY, NUM_MANY, REGION


def at(service: str, bucket: str = BUCKET, prefix: str = "p") -> BlobStore:
    """The store at an address; its faults are not waited out for long."""
    url = f"s3://{bucket}/{prefix}?endpoint_url={service}&region={REGION}"
    return open_store(url, RetryPolicy(total_s=2.0))


USES: dict[str, Callable[[BlobStore], object]] = {
    "get": lambda store: store.get("a"),
    "get_range": lambda store: store.get_range("a", 0, 1),
    "size": lambda store: store.size("a"),
    "exists": lambda store: store.exists("a"),
    "list": lambda store: store.list(""),
    "put": lambda store: store.put("a", b""),
    "put_if_absent": lambda store: store.put_if_absent("a", b""),
    "delete_prefix": lambda store: store.delete_prefix("a"),
    "check": lambda store: store.check(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_wrong_secret_is_said_to_be_wrong(
    rclone: str, monkeypatch: pytest.MonkeyPatch, use: Callable[[BlobStore], object]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StoreRefused, match="correct AWS_SECRET_ACCESS_KEY"):
        use(at(rclone))


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_bucket_that_is_not_there_is_no_missing_blob(
    rclone: str, use: Callable[[BlobStore], object]
) -> None:
    with pytest.raises(StoreRefused, match=r"there is no bucket 'nowhere' at http.*: create it"):
        use(at(rclone, bucket="nowhere"))


def test_an_unknown_key_is_said_to_be_unknown(rclone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    with pytest.raises(StoreRefused, match="does not know the access key: set AWS_ACCESS_KEY_ID"):
        at(rclone).exists("a")


def test_no_credentials_are_missed_by_name(
    rclone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreRefused, match="there are no credentials for http"):
        at(rclone).get("a")


def test_a_service_without_conditional_writes_is_refused_and_overwrites_nothing(
    rclone: str, prefix: str
) -> None:
    store = at(rclone, prefix=prefix)
    store.put("manifest", b"first")
    with pytest.raises(StoreRefused, match="does not honour If-None-Match"):
        store.check()
    with pytest.raises(StoreRefused, match="does not honour If-None-Match"):
        store.put_if_absent("manifest", b"second")
    assert store.get("manifest") == b"first"


def test_who_has_the_address_can_read_the_blob_and_parts_of_it(rclone: str, prefix: str) -> None:
    store = at(rclone, prefix=prefix)
    store.put("odd key +%", b"0123456789")
    address = store.presign("odd key +%", method="GET", expires_s=60)
    assert address is not None
    assert httpx.get(address).content == b"0123456789"
    assert httpx.get(address, headers={"Range": "bytes=2-4"}).content == b"234"


def test_who_has_the_address_can_write_the_blob(rclone: str, prefix: str) -> None:
    store = at(rclone, prefix=prefix)
    address = store.presign("new", method="PUT", expires_s=60)
    assert address is not None
    assert httpx.put(address, content=b"from outside").status_code == 200
    assert store.get("new") == b"from outside"


def test_an_address_opens_nothing_else(rclone: str, prefix: str) -> None:
    store = at(rclone, prefix=prefix)
    store.put("mine", b"1")
    store.put("mine2", b"2")
    address = store.presign("mine", method="GET", expires_s=60)
    assert address is not None
    last = "0" if address[-1] != "0" else "1"
    for forged in (
        address[:-1] + last,
        address.replace("/mine?", "/mine2?"),
        address.replace("Expires=60", "Expires=600"),
    ):
        assert forged != address
        assert httpx.get(forged).status_code == 403
    assert httpx.put(address, content=b"3").status_code == 403
    assert store.get("mine") == b"1"


def test_addresses_are_made_for_those_who_see_the_service_elsewhere(rclone: str) -> None:
    url = f"s3://{BUCKET}/p?endpoint_url={rclone}&public_url=https://files.example.org"
    address = open_store(f"{url}&region={REGION}").presign("a", method="GET", expires_s=60)
    assert address is not None
    assert address.startswith(f"https://files.example.org/{BUCKET}/p/a?X-Amz-Algorithm=AWS4-HMAC")


def test_more_keys_than_one_answer_holds_are_listed(rclone: str) -> None:
    store = at(rclone, prefix="")
    names = tuple(f"{MANY}/{i:04d}" for i in range(NUM_MANY))
    assert store.list(MANY) == names
