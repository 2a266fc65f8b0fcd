"""The ladder `s3`, against a service that does everything and ones that do not."""

from __future__ import annotations

import asyncio

import pytest

from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.s3 import S3Ladder, place_of_store
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.process.redactor import Redactor
from tests.hillclimb.blobs.conftest import credentials, moto, rclone
from tests.hillclimb.blobs.servers import BUCKET, REGION, SECRET

__all__ = ["credentials", "moto", "rclone"]


def at(service: str, bucket: str = BUCKET) -> BlobStore:
    url = f"s3://{bucket}/p?endpoint_url={service}&region={REGION}"
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


def test_the_place_of_a_store_has_neither_settings_nor_a_user() -> None:
    url = "s3://bucket/runs?endpoint_url=http://user:secret@minio:9000&region=us-east-1"
    assert place_of_store(url) == "s3://bucket/runs at minio:9000"
    assert place_of_store("s3://bucket/runs") == "s3://bucket/runs"
