"""What an S3 service does on bad days: it answers late, half, or with a fault that passes."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError, StoreFull, StoreRefused
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.blobs.s3.parts import PART_BYTES
from tests.hillclimb.blobs.servers import BUCKET, REGION, Fault, FaultyProxy, make_client

QUICK = RetryPolicy(total_s=60.0, first_pause_s=0.01, longest_pause_s=0.05, silence_s=20.0)
SLOW_DOWN = Fault(status=503, code="SlowDown")
BROKEN = Fault(cut_at=0)
ANSWER_LOST = Fault(reaches_service=True, cut_at=0)


@pytest.fixture
def proxy(moto: str) -> Iterator[FaultyProxy]:
    with FaultyProxy(moto).serve() as running:
        yield running


@pytest.fixture
def store(proxy: FaultyProxy, prefix: str) -> BlobStore:
    """A store behind the proxy that has been used already: its bucket is known to be fine."""
    url = f"s3://{BUCKET}/{prefix}?endpoint_url={proxy.url}&region={REGION}"
    opened = open_store(url, QUICK)
    opened.check()
    opened.exists("nothing")
    proxy.seen.clear()
    return opened


@pytest.mark.parametrize(
    "fault",
    [
        SLOW_DOWN,
        BROKEN,
        Fault(status=500),
        Fault(status=502, body="<html>Bad Gateway</html>"),
        Fault(status=429, code="TooManyRequests"),
        Fault(status=400, code="RequestTimeout"),
        Fault(reaches_service=True, cut_at=3),
    ],
    ids=["slow down", "reset", "500", "502", "429", "timeout", "cut short"],
)
def test_a_fault_that_passes_is_waited_out(
    store: BlobStore, proxy: FaultyProxy, fault: Fault
) -> None:
    store.put("a", b"0123456789")
    proxy.play(fault, fault)
    assert store.get("a") == b"0123456789"
    if fault.cut_at is None:
        proxy.play(fault)
        store.put("a", b"again")
        assert store.get("a") == b"again"


def test_a_service_that_falls_silent_is_asked_again(
    store: BlobStore, proxy: FaultyProxy, prefix: str
) -> None:
    store.put("a", b"0123456789")
    url = f"s3://{BUCKET}/{prefix}?endpoint_url={proxy.url}&region={REGION}"
    hasty = open_store(url, RetryPolicy(total_s=60.0, first_pause_s=0.01, silence_s=1.0))
    proxy.play(Fault(reaches_service=True, stall_s=3.0))
    assert hasty.get("a") == b"0123456789"
    assert len(proxy.seen) >= 3


def test_the_same_request_is_made_again_and_no_more_often_than_needed(
    store: BlobStore, proxy: FaultyProxy
) -> None:
    proxy.play(SLOW_DOWN, SLOW_DOWN, SLOW_DOWN)
    store.put("a", b"1")
    assert len(proxy.seen) == 4
    with pytest.raises(BlobMissing):
        store.get("no")
    assert len(proxy.seen) == 5


def test_a_range_of_nothing_is_asked_about_and_not_downloaded(
    store: BlobStore, proxy: FaultyProxy
) -> None:
    store.put("a", b"0123456789")
    proxy.seen.clear()
    assert store.get_range("a", 3, 0) == b""
    assert [each.partition(" ")[0] for each in proxy.seen] == ["HEAD"]


def test_a_fault_that_stays_is_an_error_within_the_time_given(
    proxy: FaultyProxy, prefix: str
) -> None:
    url = f"s3://{BUCKET}/{prefix}?endpoint_url={proxy.url}&region={REGION}"
    store = open_store(url, RetryPolicy(total_s=0.5, first_pause_s=0.05, silence_s=0.3))
    for fault in (SLOW_DOWN, BROKEN, Fault(reaches_service=True, stall_s=1.0)):
        proxy.choose = lambda method, path, fault=fault: fault
        began = time.monotonic()
        with pytest.raises(StoreError) as refused:
            store.get("a")
        assert not isinstance(refused.value, BlobMissing | StoreRefused)
        assert time.monotonic() - began < 20.0


def test_a_service_that_is_not_there_is_an_error_within_the_time_given(proxy: FaultyProxy) -> None:
    url = f"s3://{BUCKET}/p?endpoint_url=http://127.0.0.1:1&region={REGION}"
    began = time.monotonic()
    with pytest.raises(StoreError, match="Could not connect"):
        open_store(url, RetryPolicy(total_s=0.3, first_pause_s=0.05)).get("a")
    assert time.monotonic() - began < 20.0


def test_a_write_whose_answer_was_lost_is_known_again(store: BlobStore, proxy: FaultyProxy) -> None:
    proxy.play(ANSWER_LOST)
    assert store.put_if_absent("m", b"mine")
    assert not store.put_if_absent("m", b"mine")
    proxy.play(ANSWER_LOST)
    assert not store.put_if_absent("m", b"other")
    assert store.get("m") == b"mine"


def test_two_writers_in_each_others_way_are_told_to_try_again(
    store: BlobStore, proxy: FaultyProxy
) -> None:
    proxy.play(Fault(status=409, code="ConditionalRequestConflict"))
    assert store.put_if_absent("m", b"1")


@pytest.mark.parametrize("status", [400, 501])
def test_a_service_that_says_it_knows_no_conditional_writes_is_refused(
    proxy: FaultyProxy, prefix: str, status: int
) -> None:
    url = f"s3://{BUCKET}/{prefix}?endpoint_url={proxy.url}&region={REGION}"
    proxy.play(Fault(status=status, code="NotImplemented"))
    with pytest.raises(StoreRefused, match="does not honour If-None-Match"):
        open_store(url, QUICK).check()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of three parts."""
    path = tmp_path / "large"
    path.write_bytes(random.Random(0).randbytes(2 * PART_BYTES + 1000))
    return path


def uploads(service: str, prefix: str) -> list[str]:
    """Keys of uploads under way below a prefix."""
    found = make_client(service).list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    return [each["Key"] for each in found if each["Key"].startswith(prefix)]


def test_parts_that_fail_for_a_while_are_sent_again(
    store: BlobStore, proxy: FaultyProxy, large: Path, tmp_path: Path
) -> None:
    proxy.play(SLOW_DOWN, None, ANSWER_LOST, on="partNumber")
    store.put_file("f", large)
    proxy.play(None, Fault(reaches_service=True, cut_at=100_000), BROKEN, on="GET")
    store.get_file("f", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()


def test_an_upload_whose_last_answer_was_lost_is_complete(
    store: BlobStore, proxy: FaultyProxy, large: Path
) -> None:
    fault = [ANSWER_LOST]
    proxy.choose = lambda method, path: (
        fault.pop() if fault and method == "POST" and "uploadId" in path else None
    )
    store.put_file("f", large)
    assert store.size("f") == large.stat().st_size


def test_an_upload_that_fails_leaves_neither_blob_nor_parts(
    store: BlobStore, proxy: FaultyProxy, moto: str, prefix: str, large: Path
) -> None:
    denied = Fault(status=403, code="AccessDenied")
    proxy.choose = lambda method, path: denied if "partNumber=2" in path else None
    with pytest.raises(StoreRefused, match="allow s3:GetObject, s3:PutObject"):
        store.put_file("f", large)
    assert not store.exists("f")
    assert uploads(moto, prefix) == []


def test_parts_of_an_upload_that_was_killed_go_with_the_prefix(
    store: BlobStore, moto: str, prefix: str
) -> None:
    client = make_client(moto)
    for name in ("a/killed", "a", "ab"):
        client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{name}")
    store.delete_prefix("a")
    assert uploads(moto, prefix) == [f"{prefix}/ab"]


def test_a_download_that_fails_leaves_what_was_there(
    store: BlobStore, proxy: FaultyProxy, large: Path, tmp_path: Path
) -> None:
    store.put_file("f", large)
    target = tmp_path / "deep" / "back"
    target.parent.mkdir()
    target.write_text("before")
    denied = Fault(status=403, code="AccessDenied")
    proxy.choose = lambda method, _: denied if method == "GET" else None
    with pytest.raises(StoreRefused):
        store.get_file("f", target)
    assert target.read_text() == "before"
    assert list(target.parent.iterdir()) == [target]


def errors_for(prefix: str, *names: str, code: str) -> Fault:
    """An answer to a deletion that did not delete some of the keys."""
    each = "<Error><Key>{}</Key><Code>{}</Code><Message>no</Message></Error>"
    body = "".join(each.format(f"{prefix}/{name}", code) for name in names)
    return Fault(status=200, body=f"<DeleteResult>{body}</DeleteResult>")


def test_more_keys_than_one_request_takes_are_deleted(
    store: BlobStore, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hillclimb.blobs.s3.store.DELETE_AT_ONCE", 2)
    for number in range(5):
        store.put(f"d/{number}", b"")
    assert store.delete_prefix("d") == 5
    assert sum(seen.startswith("POST") for seen in proxy.seen) == 3
    assert store.list("d") == ()


def test_keys_that_could_not_be_deleted_are_tried_again(
    store: BlobStore, proxy: FaultyProxy, prefix: str
) -> None:
    for name in ("d/1", "d/2"):
        store.put(name, b"")
    proxy.play(errors_for(prefix, "d/1", "d/2", code="InternalError"), on="POST")
    assert store.delete_prefix("d") == 2
    assert store.list("d") == ()


def test_keys_that_may_not_be_deleted_are_named(
    store: BlobStore, proxy: FaultyProxy, prefix: str
) -> None:
    for name in ("d/1", "d/2"):
        store.put(name, b"")
    proxy.choose = lambda method, _: (
        errors_for(prefix, "d/2", code="AccessDenied") if method == "POST" else None
    )
    with pytest.raises(
        StoreError, match=r"1 could not be deleted, the first '.*d/2': AccessDenied"
    ):
        store.delete_prefix("d")


def test_a_service_that_deletes_one_key_at_a_time_is_asked_so(
    store: BlobStore, proxy: FaultyProxy
) -> None:
    for name in ("d/1", "d/2"):
        store.put(name, b"")
    unknown = Fault(status=501, code="NotImplemented")
    proxy.choose = lambda method, _: unknown if method == "POST" else None
    assert store.delete_prefix("d") == 2
    assert store.list("d") == ()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            Fault(
                status=403,
                code="RequestTimeTooSkewed",
                headers=(("Date", "Tue, 01 Jan 2036 00:00:00 GMT"),),
            ),
            r"this machine's clock is \d+ s behind http.*: set the clock",
        ),
        (Fault(status=403, code="AccessDenied"), "does not let these credentials do this"),
        (Fault(status=400, code="ExpiredToken"), "renew AWS_SESSION_TOKEN"),
        (Fault(status=400, code="InvalidBucketName"), "is no name of a bucket"),
        (
            Fault(
                status=400,
                body="<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong"
                "</Message><Region>eu-north-1</Region></Error>",
            ),
            "bucket 'bucket' is in eu-north-1, but the request went to us-east-1: "
            "write region=eu-north-1",
        ),
    ],
    ids=["clock", "denied", "expired", "name", "region"],
)
def test_a_refusal_says_what_to_change(
    store: BlobStore, proxy: FaultyProxy, fault: Fault, sentence: str
) -> None:
    proxy.choose = lambda *_: fault
    for use in (lambda: store.get("a"), lambda: store.exists("a"), lambda: store.put("a", b"")):
        with pytest.raises(StoreRefused, match=sentence):
            use()


def test_a_full_store_is_told_apart_at_once(store: BlobStore, proxy: FaultyProxy) -> None:
    proxy.choose = lambda *_: Fault(status=507, code="XMinioStorageFull")
    with pytest.raises(StoreFull):
        store.put("a", b"")
    assert len(proxy.seen) == 1
