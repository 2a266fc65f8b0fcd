"""Opens the blob store of an address: a directory or a bucket."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from hillclimb.blobs.base import BlobStore, StoreError, StoreRefused
from hillclimb.blobs.disk import DiskStore
from hillclimb.blobs.retry import RetryPolicy

_S3_SETTINGS = frozenset({"endpoint_url", "region", "public_url"})


def open_store(url: str, retry: RetryPolicy | None = None) -> BlobStore:
    """Return the store at `url`: a directory, `file:///dir`, or `s3://bucket/prefix`.

    An S3 address may name another service (`s3://bucket/prefix?endpoint_url=http://host:9000`), its
    `region`, and a `public_url`, the service's address for other machines in presigned URLs.
    `retry` bounds the retries of requests. No request is made here; the first is
    `BlobStore.check`.

    Raises:
        StoreError: the kind of store is unknown.
        StoreRefused: the address is invalid.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        # botocore takes about a second to import, and most stores are directories.
        from hillclimb.blobs.s3.store import S3Store  # noqa: PLC0415

        query = dict(parse_qsl(parts.query))
        strange = sorted(set(query) - _S3_SETTINGS)
        if strange:
            raise StoreRefused(
                f"{strange[0]!r} is no setting of an S3 address: there are"
                f" {', '.join(sorted(_S3_SETTINGS))}"
            )
        return S3Store(
            parts.netloc,
            unquote(parts.path),
            endpoint_url=query.get("endpoint_url"),
            region=query.get("region"),
            public_url=query.get("public_url"),
            retry=retry,
        )
    if parts.scheme == "file":
        return DiskStore(Path(unquote(parts.path)))
    if parts.scheme:
        raise StoreError(f"unknown kind of store: {url!r}")
    return DiskStore(Path(url))
