"""From the address of a store to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from trainer.stores.base import BlobStore, StoreError
from trainer.stores.disk import DiskStore


def open_store(url: str) -> BlobStore:
    """Return the store at `url`: a directory, `file:///dir`, or `s3://bucket/prefix`.

    An S3 address may name another service: `s3://bucket/prefix?endpoint_url=http://host:9000`
    (and `&region=...`).

    Raises:
        StoreError: the address is of no known kind.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        # boto3 takes about a second to import, and most stores are directories.
        from trainer.stores.s3 import S3Store  # noqa: PLC0415

        query = parse_qs(parts.query)
        return S3Store(
            parts.netloc,
            parts.path,
            endpoint_url=query.get("endpoint_url", [None])[0],
            region=query.get("region", [None])[0],
        )
    if parts.scheme == "file":
        return DiskStore(Path(unquote(parts.path)))
    if parts.scheme:
        raise StoreError(f"unknown kind of store: {url!r}")
    return DiskStore(Path(url))
