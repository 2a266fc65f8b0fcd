"""Which addresses the service reads with its operator's credentials; S3 is a local server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from api.datasets.errors import DatasetTooLarge, SourceRefused
from api.datasets.sources import allowed_prefixes, fetch_source

REGION = "us-east-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_only_what_lies_under_a_prefix_leaves_a_bucket(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    for bucket in ("exports", "payroll", "archive"):
        client.create_bucket(Bucket=bucket)
        for key in ("v4/all.json", "v40/all.json"):
            client.put_object(Bucket=bucket, Key=key, Body=f"{bucket}/{key}".encode())
    where = f"endpoint_url={endpoint}&region={REGION}"
    prefixes = allowed_prefixes(f"s3://exports/v4?{where}\n s3://archive?{where}")
    target = tmp_path / "file"
    fetch_source("s3://exports/v4/all.json", prefixes, target, max_bytes=100)
    assert target.read_bytes() == b"exports/v4/all.json"
    for address in (
        "s3://payroll/v4/all.json",
        "s3://exports/v40/all.json",
        "s3://exports/v4/../v40/all.json",
        "s3://exports/v4",
        "s3://exports/v4/all.json?endpoint_url=http://evil",
        "s3://exports/v4/none.json",
        "s3://archive/none.json",
        "https://exports/v4/all.json",
    ):
        with pytest.raises(SourceRefused) as refusal:
            fetch_source(address, prefixes, tmp_path / "other", max_bytes=100)
        assert endpoint not in str(refusal.value), "where the bucket is concerns the operator"
    with pytest.raises(SourceRefused, match="The service cannot read"):
        fetch_source("s3://gone/x", allowed_prefixes(f"s3://gone?{where}"), target, max_bytes=9)
    with pytest.raises(DatasetTooLarge, match="has 19 bytes, and the limit is 10"):
        fetch_source("s3://exports/v4/all.json", prefixes, target, max_bytes=10)


def test_without_a_setting_nothing_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text("[]")
    with pytest.raises(SourceRefused, match=r"may read \(none\): upload the file"):
        fetch_source(f"file://{tmp_path}/all.json", (), tmp_path / "file", max_bytes=100)


def test_the_blob_store_is_no_source_whatever_the_prefixes_cover(tmp_path: Path) -> None:
    """Rollouts and checkpoints of every project lie there."""
    theirs = tmp_path / "blobs" / "runs" / "run_theirs.jsonl"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[]")
    (tmp_path / "link").symlink_to(theirs.parent)
    target, stores = tmp_path / "file", [str(tmp_path / "blobs"), "s3://store/blobs"]
    for address in (f"file://{theirs}", f"file://{tmp_path}/link/run_theirs.jsonl"):
        with pytest.raises(SourceRefused, match="lies in the blob store of this service"):
            fetch_source(address, ("file:///",), target, max_bytes=100, stores=stores)
    with pytest.raises(SourceRefused, match="lies in the blob store of this service"):
        fetch_source(
            "s3://store/blobs/x.json", ("s3://store",), target, max_bytes=100, stores=stores
        )
    own = tmp_path / "own.json"
    own.write_text("[]")
    fetch_source(f"file://{own}", ("file:///",), target, max_bytes=100, stores=stores)
    assert target.read_text() == "[]"
