"""A blob store in an S3 bucket, AWS or compatible; the only file that names boto3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainer.stores.base import BlobMissing, StoreError, StoreFull, checked_key

PART_BYTES = 64 * 1024 * 1024
_MISSING = ("NoSuchKey", "404", "NotFound", "NoSuchBucket")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507")
_DELETE_AT_ONCE = 1000


class S3Store:
    """Blobs under `s3://bucket/prefix`; credentials and defaults come from the usual AWS places."""

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint_url: str | None, region: str | None
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=region,
            config=Config(
                signature_version="s3v4",
                retries={"mode": "adaptive", "max_attempts": 4},
                connect_timeout=10,
                read_timeout=60,
            ),
        )
        self._transfer = TransferConfig(multipart_chunksize=PART_BYTES, max_concurrency=4)

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing what was there."""
        with _translated(key):
            self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=data)

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file, in parts of 64 MiB when it is larger."""
        with _translated(key):
            self._client.upload_file(str(path), self._bucket, self._key(key), Config=self._transfer)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless the key exists (`If-None-Match: *`)."""
        with _translated(key):
            try:
                self._client.put_object(
                    Bucket=self._bucket, Key=self._key(key), Body=data, IfNoneMatch="*"
                )
            except ClientError as error:
                if _status(error) in (409, 412):
                    return False
                raise
            return True

    def get(self, key: str) -> bytes:
        """Return a blob."""
        with _translated(key):
            reply = self._client.get_object(Bucket=self._bucket, Key=self._key(key))
            data: bytes = reply["Body"].read()
            return data

    def get_file(self, key: str, path: Path) -> None:
        """Download a blob to `path`."""
        with _translated(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(
                self._bucket, self._key(key), str(path), Config=self._transfer
            )

    def exists(self, key: str) -> bool:
        """Tell whether there is a blob under exactly this key."""
        with _translated(key):
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._key(key))
            except ClientError as error:
                if _status(error) == 404:
                    return False
                raise
            return True

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted."""
        start = self._key(prefix) if prefix else self._prefix
        with _translated(prefix or "/"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=start
            )
            keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        cut = len(self._prefix) + 1 if self._prefix else 0
        inside = (key for key in keys if not start or key == start or key.startswith(f"{start}/"))
        return tuple(sorted(key[cut:] for key in inside))

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix, a thousand per request."""
        checked_key(prefix)
        keys = self.list(prefix)
        with _translated(prefix):
            for start in range(0, len(keys), _DELETE_AT_ONCE):
                batch = [{"Key": self._key(key)} for key in keys[start : start + _DELETE_AT_ONCE]]
                reply = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
                )
                if reply.get("Errors"):
                    raise StoreError(f"could not delete {reply['Errors'][0]['Key']!r}")
        return len(keys)

    def local_path(self, key: str) -> Path | None:
        """Return None: the blob is elsewhere."""
        checked_key(key)
        return None

    def _key(self, key: str) -> str:
        checked_key(key)
        return f"{self._prefix}/{key}" if self._prefix else key


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _MISSING:
            raise BlobMissing(f"no blob {key!r}") from error
        kind = StoreFull if code in _FULL else StoreError
        raise kind(f"blob {key!r}: {error}") from error
    except (BotoCoreError, Boto3Error) as error:
        raise StoreError(f"blob {key!r}: {error}") from error
