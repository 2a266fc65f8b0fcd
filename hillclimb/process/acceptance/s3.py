"""The ladder `s3`: the operations of a bucket that runs depend on."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from hillclimb.blobs.base import BlobStore, StoreError, StoreRefused
from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed

T = TypeVar("T")
MIB = 2**20
SIZE_IN_PARTS = 17 * MIB
"""One part of 16 MiB and a rest: the smallest upload in parts."""
LIMIT_S, TRANSFER_S = 30.0, 120.0
ADDRESS_S = 60
"""Life of the presigned address."""
WITHOUT_ANSWER = (
    "check that this machine reaches the service, and its address (HILLCLIMB_BLOBS_URL)"
)
WITH_FAULT = (
    "the service answers with an error of its own: see its log, and whether the bucket is"
    " read-only or full"
)
OTHER_SERVER = (
    "correct endpoint_url in HILLCLIMB_BLOBS_URL if another server answers there, else use a"
    " service that returns what was stored (AWS S3, MinIO, Cloudflare R2)"
)
PUBLIC_URL = (
    "set public_url in HILLCLIMB_BLOBS_URL to the address under which others reach the service"
)
_DETAILS = re.compile(r"^blob '[^']*': |(?<=[^\s?\"])\?[^\s\"]+")
"""The name of the ladder's own blob, and the query of an address."""


class S3Ladder:
    """Checks a store under a prefix of its own, which it deletes."""

    def __init__(self, store: BlobStore, *, transport: httpx.BaseTransport | None = None) -> None:
        self._store = store
        self._prefix = f"accept/{uuid.uuid4().hex}"
        self._transport = transport
        self._is_clean = True

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("bucket", self._list_nothing),
            self._check("put", self._put),
            self._check("listed", self._list),
            self._check("multipart", self._put_in_parts, limit_s=TRANSFER_S),
            self._check("conditional", self._put_twice),
            self._check("presigned", self._read_by_address),
            self._check("deleted", self._delete),
        )

    async def close(self) -> None:
        """Delete what is left under the prefix; nothing is asked where nothing was stored."""
        if not self._is_clean:
            try:
                await asyncio.to_thread(self._store.delete_prefix, self._prefix)
            except StoreError:  # the failure before has the reason, and its remedy
                return

    def _check(
        self, name: str, act: Callable[[], str], *, limit_s: float = LIMIT_S
    ) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                return await asyncio.to_thread(act)
            except StoreRefused as refusal:
                raise CheckFailed("the store refuses", str(refusal)) from refusal
            except StoreError as error:
                # botocore's error of a service that answered has what it answered.
                has_answered = isinstance(getattr(error.__cause__, "response", None), dict)
                remedy = WITH_FAULT if has_answered else WITHOUT_ANSWER
                raise CheckFailed(_DETAILS.sub("", str(error)), remedy) from error

        return AcceptanceCheck(name=name, act=explained, limit_s=limit_s, late=WITHOUT_ANSWER)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _list_nothing(self) -> str:
        _expect(self._store.list(self._prefix), (), "list an empty prefix as empty")
        return "the bucket is there and can be listed"

    def _put(self) -> str:
        self._is_clean = False
        self._store.put(self._key("small"), b"0123456789")
        if (seen := self._store.get(self._key("small"))) != b"0123456789":
            raise CheckFailed(f"{seen!r:.120} instead of the 10 bytes just stored", OTHER_SERVER)
        return "10 bytes stored and read back"

    def _list(self) -> str:
        self._store.put(self._key("folder/other"), b"")
        keys = (self._key("folder/other"), self._key("small"))
        _expect(self._store.list(self._prefix), keys, "list what was just stored")
        return "2 keys listed right after they were stored"

    def _put_in_parts(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parts"
            block = os.urandom(MIB)
            path.write_bytes(block * (SIZE_IN_PARTS // MIB))
            self._store.put_file(self._key("parts"), path)
        _expect(self._store.size(self._key("parts")), SIZE_IN_PARTS, "keep the size of an upload")
        across = self._store.get_range(self._key("parts"), 16 * MIB - 4, 8)
        _expect(across, block[-4:] + block[:4], "join the parts of an upload in order")
        return (
            f"{SIZE_IN_PARTS // MIB} MiB uploaded in two parts; 8 bytes across their border agree"
        )

    def _put_twice(self) -> str:
        first = self._store.put_if_absent(self._key("once"), b"first")
        second = self._store.put_if_absent(self._key("once"), b"second")
        _expect((first, second), (True, False), "let only one of two conditional writes succeed")
        _expect(self._store.get(self._key("once")), b"first", "keep the first of two writes")
        return "of two conditional writes the first stays"

    def _read_by_address(self) -> str:
        address = self._store.presign(self._key("small"), method="GET", expires_s=ADDRESS_S)
        if address is None:
            raise CheckFailed("the store has no addresses", "use a store at s3://…")
        place = urlsplit(address).netloc
        try:
            with httpx.Client(transport=self._transport, timeout=LIMIT_S / 2) as client:
                part = client.get(address, headers={"Range": "bytes=3-6"})
                bare = client.get(str(httpx.URL(address).copy_with(query=None)))
        except httpx.HTTPError as error:
            raise CheckFailed(f"{place}: {error}", PUBLIC_URL) from error
        if (part.status_code, part.content) != (206, b"3456"):
            raise CheckFailed(
                f"HTTP {part.status_code} with {part.content!r:.60} instead of 4 bytes at a"
                f" presigned address of {place}",
                f"{PUBLIC_URL}; a proxy must change neither the Host header nor the range that is"
                " requested",
            )
        bare_answer = "anybody can" if bare.is_success else f"HTTP {bare.status_code}"
        return f"4 bytes read by a presigned address; without its signature: {bare_answer}"

    def _delete(self) -> str:
        number = self._store.delete_prefix(self._prefix)
        _expect(self._store.list(self._prefix), (), "list nothing after a deletion")
        self._is_clean = True
        return f"{number} blobs deleted, none listed"


def place_of_store(url: str) -> str:
    """Return bucket, prefix and service of a store's address, without settings and user."""
    parts = urlsplit(url)
    query = httpx.QueryParams(parts.query)
    service = urlsplit(query.get("endpoint_url", "")).netloc.rpartition("@")[2]
    return f"s3://{parts.netloc}{parts.path}" + (f" at {service}" if service else "")


def _expect(seen: T, expected: T, claim: str) -> None:
    if seen != expected:
        raise CheckFailed(
            f"{seen!r:.120} instead of {expected!r:.120}",
            f"the service does not {claim}: use one that does (AWS S3, MinIO, Cloudflare R2)",
        )
