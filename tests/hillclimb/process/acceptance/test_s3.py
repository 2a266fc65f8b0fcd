"""The ladder `s3`, against a service that does everything and ones that do not."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import pytest

from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.s3 import S3Ladder, place_of_store
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.process.redactor import Redactor
from tests.hillclimb.blobs.conftest import credentials, moto, rclone
from tests.hillclimb.blobs.servers import BUCKET, REGION, SECRET, Fault, FaultyProxy

__all__ = ["credentials", "moto", "rclone"]


def at(service: str, bucket: str = BUCKET, more: str = "") -> BlobStore:
    url = f"s3://{bucket}/p?endpoint_url={service}&region={REGION}{more}"
    return open_store(url, RetryPolicy(total_s=1.0))


def climbed(store: BlobStore) -> tuple[CheckObservation, ...]:
    return asyncio.run(climb(S3Ladder(store), Redactor((SECRET,))))


def test_a_service_with_conditional_writes_passes_and_nothing_is_left(moto: str) -> None:
    store = at(moto)
    observations = climbed(store)
    assert [each.name for each in observations if each.passed] == list(FACTS["s3"].checks)
    assert store.list("accept") == ()


def test_a_service_without_them_fails_there_and_nothing_is_left(rclone: str) -> None:
    store = at(rclone)
    *before, last = climbed(store)
    assert [each.name for each in before] == ["bucket", "put", "listed", "multipart"]
    assert (last.name, last.passed) == ("conditional", False)
    assert "use a service with conditional writes" in last.remedy
    assert store.list("accept") == ()


def test_a_wrong_key_is_the_first_thing_that_is_said(
    rclone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    (only,) = climbed(at(rclone))
    assert (only.name, only.passed) == ("bucket", False)
    assert "correct AWS_SECRET_ACCESS_KEY" in only.remedy


def test_a_bucket_that_is_not_there_is_named(rclone: str) -> None:
    (only,) = climbed(at(rclone, "nowhere"))
    assert "there is no bucket 'nowhere'" in only.remedy


def test_a_service_that_is_away_is_named_without_the_request_and_asked_no_more() -> None:
    (only,) = climbed(at("http://127.0.0.1:9"))
    assert only.seen == 'Could not connect to the endpoint URL: "http://127.0.0.1:9/bucket"'
    assert "check that this machine reaches the service" in only.remedy


def test_a_service_that_never_answers_is_no_service_with_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"s3://{BUCKET}?endpoint_url=http://127.0.0.1:{silent.getsockname()[1]}"
        (only,) = climbed(open_store(url, RetryPolicy(total_s=0.1, silence_s=0.2)))
    assert "Read timeout" in only.seen
    assert "check that this machine reaches the service" in only.remedy


def test_nothing_is_deleted_where_nothing_was_stored(moto: str) -> None:
    with FaultyProxy(moto).serve() as proxy:
        (only,) = climbed(at(proxy.url, "nowhere"))
    assert "there is no bucket 'nowhere'" in only.remedy
    assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("AccessDenied", "allow s3:GetObject, s3:PutObject"), ("InternalError", "is read-only")],
)
def test_a_bucket_that_takes_nothing_is_said_to_be_read_only(
    moto: str, code: str, remedy: str
) -> None:
    with FaultyProxy(moto).serve() as proxy:
        proxy.choose = lambda method, _: Fault(status=403, code=code) if method == "PUT" else None
        *_, last = climbed(at(proxy.url))
    assert (last.name, last.passed) == ("put", False)
    assert remedy in last.remedy


def test_another_server_at_the_address_is_not_taken_for_a_bad_service(moto: str) -> None:
    with FaultyProxy(moto).serve() as proxy:
        proxy.choose = lambda method, _: Fault(status=200, body="<html/>")
        *_, last = climbed(at(proxy.url))
    assert (last.name, last.passed) == ("put", False)
    assert "correct endpoint_url" in last.remedy


@pytest.mark.parametrize("away", [True, False])
def test_a_wrong_public_address_is_named_as_the_cause(moto: str, away: bool) -> None:
    with FaultyProxy(moto).serve() as proxy:
        proxy.choose = lambda method, _: Fault(status=200, body="<html/>")
        public = "http://127.0.0.1:9" if away else proxy.url
        *_, last = climbed(at(moto, more=f"&public_url={public}"))
    assert (last.name, last.passed) == ("presigned", False)
    assert urlsplit(public).netloc in last.seen
    assert "set public_url in HILLCLIMB_BLOBS_URL" in last.remedy


def test_the_place_of_a_store_has_neither_settings_nor_a_user() -> None:
    url = "s3://bucket/runs?endpoint_url=http://user:secret@minio:9000&region=us-east-1"
    assert place_of_store(url) == "s3://bucket/runs at minio:9000"
    assert place_of_store("s3://bucket/runs") == "s3://bucket/runs"
