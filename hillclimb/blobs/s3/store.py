"""A blob store in an S3 bucket, AWS or compatible."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from hillclimb.blobs.base import BlobMissing, Method, StoreError, StoreRefused, checked_key
from hillclimb.blobs.files import partial, translated
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.blobs.s3.explain import BucketAddress
from hillclimb.blobs.s3.parts import MULTIPART_FROM, Part, at_once, plan_parts
from hillclimb.blobs.s3.service import (
    UNKNOWN,
    BeyondEnd,
    NotDeleted,
    S3Service,
    code_of,
    connect,
    status_of,
)

_log = logging.getLogger(__name__)

PROBE = ".conditional-writes"
"""Key written once per prefix to test that the service honours `If-None-Match`; never listed."""
WRITER = "hillclimb-writer"
"""Metadata by which a writer recognises its own blob when the response to its write was lost."""
DELETE_AT_ONCE = 200
"""Keys of one deletion: S3 accepts 1000, which slow services do not finish in time."""
_NEXT_KEYS = {"ContinuationToken": "NextContinuationToken"}
_NEXT_UPLOADS = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
"""Parameters of the next page's request, by the fields of the reply with their values."""


class S3Store:
    """Stores blobs under `s3://bucket/prefix`; botocore finds credentials and defaults as usual.

    `public_url` is the service's address for other machines, used in presigned URLs.

    Raises:
        StoreRefused: the service's address is invalid.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None,
        region: str | None,
        public_url: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        retry = retry or RetryPolicy()
        client = connect(endpoint_url, region, silence_s=retry.silence_s)
        public = connect(public_url, region, silence_s=retry.silence_s) if public_url else client
        self._signer = public
        place = BucketAddress(
            bucket=bucket,
            service=endpoint_url or "AWS",
            region=str(client.meta.region_name),
        )
        self._service = S3Service(client=client, place=place, retry=retry)
        self._prefix = prefix.strip("/")
        self._is_conditional = False
        self._is_bucket_known = False
        """True once the bucket is known to exist; a HEAD fails alike without bucket and blob."""

    def check(self) -> None:
        """Check that the bucket exists, permits our requests, and supports conditional writes."""
        self._require_conditional_writes()

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing the blob if it exists."""
        self._service.ask("put_object", self._key(key), Body=data)

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file; a large one in parts, several at once; a failure leaves no parts."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < MULTIPART_FROM:
                self.put(key, _read_part(file.fileno(), Part(1, 0, size)))
            else:
                self._put_parts(key, file.fileno(), size)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless the key exists (`If-None-Match: *`)."""
        self._require_conditional_writes()
        return self._put_once(key, data)

    def get(self, key: str) -> bytes:
        """Return a blob."""
        return self._read(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from byte `start`."""
        if length <= 0:
            if not self.exists(key):
                raise BlobMissing(f"no blob {key!r}")
            return b""
        try:
            return self._read(key, Range=f"bytes={start}-{start + length - 1}")
        except BeyondEnd:
            return b""

    def size(self, key: str) -> int:
        """Return a blob's size (bytes)."""
        return int(self._head(key)["ContentLength"])

    def get_file(self, key: str, path: Path) -> None:
        """Download a blob to `path`; a large one in parts, several at once."""
        head = self._head(key)
        parts = plan_parts(int(head["ContentLength"]))
        with translated(key), partial(path) as local:
            with local.open("wb") as file:
                if len(parts) <= 1:
                    file.write(self.get(key))
                else:
                    at_once(lambda part: self._get_part(key, file.fileno(), head, part), parts)
            local.replace(path)

    def exists(self, key: str) -> bool:
        """Tell whether a blob of exactly this key exists."""
        try:
            self._head(key)
        except BlobMissing:
            return False
        return True

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted."""
        return tuple(self.sizes(prefix))

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the sizes (bytes) of the blobs under a prefix by key, as the listing has them."""
        start = self._key(prefix) if prefix else self._prefix
        cut = len(self._prefix) + 1 if self._prefix else 0
        items = (
            (item["Key"], int(item["Size"]))
            for page in self._service.pages("list_objects_v2", start, _NEXT_KEYS)
            for item in page.get("Contents", ())
        )
        inside = (
            (key[cut:], size)
            for key, size in items
            if not start or key == start or key.startswith(f"{start}/")
        )
        return dict(sorted((key, size) for key, size in inside if key != PROBE))

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix, many per request, and its unfinished uploads."""
        checked_key(prefix)
        keys = self.list(prefix)
        for start in range(0, len(keys), DELETE_AT_ONCE):
            self._delete(prefix, [self._key(key) for key in keys[start : start + DELETE_AT_ONCE]])
        self._drop_uploads(prefix)
        return len(keys)

    def presign(self, key: str, *, method: Method, expires_s: int) -> str | None:
        """Return a URL that permits this one operation on this blob, for at most a week."""
        operation = "get_object" if method == "GET" else "put_object"
        with self._service.translated(key):
            address: str = self._signer.generate_presigned_url(
                operation,
                Params={"Bucket": self._service.bucket, "Key": self._key(key)},
                ExpiresIn=expires_s,
            )
            return address

    def local_path(self, key: str) -> Path | None:
        """Return None: the blob is remote."""
        checked_key(key)
        return None

    def _require_conditional_writes(self) -> None:
        """Refuse a service on which the second of two writers would silently overwrite the first.

        Raises:
            StoreRefused: the service does not support `If-None-Match`, or ignores it.
        """
        if self._is_conditional:
            return
        # The first write creates the probe, if it is new. If a second one succeeds too, the
        # service ignores `If-None-Match`.
        if self._put_once(PROBE, b"") and self._put_once(PROBE, b""):
            raise self._unconditional()
        self._is_conditional = True

    def _put_once(self, key: str, data: bytes) -> bool:
        writer = uuid.uuid4().hex

        def attempt(number: int) -> bool:
            try:
                self._service.client.put_object(
                    Bucket=self._service.bucket,
                    Key=self._key(key),
                    Body=data,
                    IfNoneMatch="*",
                    Metadata={WRITER: writer},
                )
            except ClientError as error:
                if status_of(error) == 412:
                    # The response to our own write may have been lost.
                    return number > 0 and self._wrote(key, writer)
                if code_of(error) in UNKNOWN:
                    raise self._unconditional() from error
                raise
            return True

        return self._service.call(key, attempt)

    def _wrote(self, key: str, writer: str) -> bool:
        return bool(self._head(key).get("Metadata", {}).get(WRITER) == writer)

    def _unconditional(self) -> StoreRefused:
        return StoreRefused(
            f"{self._service.place.service} does not honour If-None-Match, so two attempts could"
            " overwrite each other's manifests: use a service with conditional writes (such as"
            " AWS S3, MinIO or Cloudflare R2), or a directory"
        )

    def _put_parts(self, key: str, descriptor: int, size: int) -> None:
        upload = self._service.ask("create_multipart_upload", self._key(key))["UploadId"]
        try:

            def put(part: Part) -> dict[str, object]:
                body = _read_part(descriptor, part)
                tag = self._service.ask(
                    "upload_part",
                    self._key(key),
                    UploadId=upload,
                    PartNumber=part.number,
                    Body=body,
                )["ETag"]
                return {"PartNumber": part.number, "ETag": tag}

            self._complete(key, upload, at_once(put, plan_parts(size)), size)
        except BaseException:
            self._abort(self._key(key), upload)
            raise

    def _complete(
        self, key: str, upload: str, parts: Sequence[dict[str, object]], size: int
    ) -> None:
        def attempt(number: int) -> None:
            try:
                self._service.client.complete_multipart_upload(
                    Bucket=self._service.bucket,
                    Key=self._key(key),
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},
                )
            except ClientError as error:
                # The response to a first attempt may have been lost: then the blob exists.
                if number and code_of(error) == "NoSuchUpload" and self.size(key) == size:
                    return
                raise

        self._service.call(key, attempt)

    def _abort(self, full_key: str, upload: str) -> None:
        try:
            self._service.call(
                full_key,
                lambda _: self._service.client.abort_multipart_upload(
                    Bucket=self._service.bucket, Key=full_key, UploadId=upload
                ),
            )
        except StoreError as error:
            _log.warning("parts of %r stay in bucket %s: %s", full_key, self._service.bucket, error)

    def _drop_uploads(self, prefix: str) -> None:
        """Delete the parts of aborted uploads under a prefix."""
        start = self._key(prefix)
        try:
            pages = list(self._service.pages("list_multipart_uploads", start, _NEXT_UPLOADS))
        except StoreError as error:
            _log.info("uploads under %r are not listed: %s", prefix, error)
            return
        for upload in (each for page in pages for each in page.get("Uploads", ())):
            if upload["Key"] == start or upload["Key"].startswith(f"{start}/"):
                self._abort(upload["Key"], upload["UploadId"])

    def _get_part(self, key: str, descriptor: int, head: dict[str, Any], part: Part) -> None:
        last = part.start + part.length - 1
        data = self._read(key, Range=f"bytes={part.start}-{last}", IfMatch=head["ETag"])
        if len(data) != part.length:
            raise StoreError(f"blob {key!r} changed while it was read")
        os.pwrite(descriptor, data, part.start)

    def _read(self, key: str, **options: str) -> bytes:
        def attempt(_: int) -> bytes:
            reply = self._service.client.get_object(
                Bucket=self._service.bucket, Key=self._key(key), **options
            )
            data: bytes = reply["Body"].read()
            return data

        return self._service.call(key, attempt)

    def _head(self, key: str) -> dict[str, Any]:
        """Return size and tag. A HEAD response has no body: an error is explained by a listing."""
        try:
            return self._service.ask("head_object", self._key(key))
        except BlobMissing:
            if not self._is_bucket_known:
                self._ask_why(key)
            raise
        except StoreError as error:
            if isinstance(error.__cause__, ClientError):
                self._ask_why(key)
            raise

    def _ask_why(self, key: str) -> None:
        """Raise the error of bucket or credentials, if that is the cause."""
        options = {"Bucket": self._service.bucket, "Prefix": self._key(key), "MaxKeys": 1}
        self._service.call(key, lambda _: self._service.client.list_objects_v2(**options))
        self._is_bucket_known = True

    def _delete(self, prefix: str, keys: Sequence[str]) -> None:
        remaining_keys = tuple(keys)

        def attempt(_: int) -> None:
            nonlocal remaining_keys
            failed = self._delete_once(remaining_keys)
            remaining_keys = tuple(each["Key"] for each in failed)
            if failed:
                raise NotDeleted(failed)

        self._service.call(prefix, attempt)

    def _delete_once(self, keys: Sequence[str]) -> Sequence[Mapping[str, str]]:
        """Return the errors of the keys that still exist."""
        client, bucket = self._service.client, self._service.bucket
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            reply = client.delete_objects(Bucket=bucket, Delete=objects)
        except ClientError as error:
            if code_of(error) not in UNKNOWN:
                raise
            for key in keys:
                client.delete_object(Bucket=bucket, Key=key)
            return ()
        failed: Sequence[Mapping[str, str]] = reply.get("Errors", ())
        return failed

    def _key(self, key: str) -> str:
        checked_key(key)
        return f"{self._prefix}/{key}" if self._prefix else key


def _read_part(descriptor: int, part: Part) -> bytes:
    data = os.pread(descriptor, part.length, part.start)
    if len(data) != part.length:
        raise StoreError("the file became shorter while it was uploaded")
    return data
