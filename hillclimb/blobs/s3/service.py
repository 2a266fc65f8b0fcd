"""Requests to an S3 service: made again while a fault may pass, refused in our words.

Every request is tried again by us and not by botocore, whose patience has no bound in time: after
5xx, throttling, timeouts, broken connections and bodies cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from urllib3.exceptions import HTTPError

from trainer.stores.base import BlobMissing, StoreError, StoreFull, StoreRefused
from trainer.stores.explain import Place, Refusal, explain
from trainer.stores.patience import Patience

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 16
UNKNOWN = ("NotImplemented", "501", "MissingContentMD5")
"""A service says so of what it cannot do."""
_MISSING = ("NoSuchKey", "404", "NotFound")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507")
_PASSING = frozenset(
    {
        *("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"),
        *("ThrottlingException", "RequestLimitExceeded", "ConditionalRequestConflict"),
        *("OperationAborted", "TooManyRequests", "RequestThrottled"),
    }
)
_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})


class BeyondEnd(StoreError):
    """A range that begins where the blob has ended."""


class NotDeleted(Exception):
    """Some of the keys of a request are still there."""

    def __init__(self, failed: Sequence[Mapping[str, str]]) -> None:
        first = failed[0]
        super().__init__(
            f"{len(failed)} could not be deleted, the first {first.get('Key')!r}:"
            f" {first.get('Code')} {first.get('Message', '')}".rstrip()
        )
        self.passes = all(each.get("Code") in _PASSING for each in failed)


_FAULTS = (ClientError, BotoCoreError, HTTPError, NotDeleted)
"""What a request may raise; botocore lets urllib3's through where an error's body breaks off."""
_BROKEN = (HTTPClientError, HTTPError, IncompleteReadError, ConnectionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One bucket of a service, and how long its faults are waited out."""

    client: Any
    place: Place
    patience: Patience

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.place.bucket

    def ask(self, operation: str, full_key: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Make one request for one key of the bucket and return the reply."""

        def attempt(_: int) -> dict[str, Any]:
            reply: dict[str, Any] = getattr(self.client, operation)(
                Bucket=self.bucket, Key=full_key, **options
            )
            return reply

        return self.persist(full_key, attempt)

    def pages(
        self, operation: str, prefix: str, marks: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        """Give every page of a listing.

        `marks`: parameters that ask for the next page, by the fields of a reply that hold them.
        """
        where: dict[str, str] = {}

        def attempt(_: int) -> dict[str, Any]:
            ask = getattr(self.client, operation)
            reply: dict[str, Any] = ask(Bucket=self.bucket, Prefix=prefix, **where)
            return reply

        while True:
            page = self.persist(prefix, attempt)
            yield page
            if not page.get("IsTruncated"):
                return
            where = {name: page[field] for name, field in marks.items() if field in page}

    def persist(self, what: str, attempt: Callable[[int], T]) -> T:
        """Return what `attempt(number)` returns, tried again while its fault may pass.

        Raises:
            StoreError: the last fault, or the first that does not pass; `what` is in the message.
        """
        with self.translated(what):
            return self.patience.persist(attempt, faults=_FAULTS, passes=_passes)

    @contextmanager
    def translated(self, key: str) -> Iterator[None]:
        """Turn botocore's errors in the block into ours."""
        try:
            yield
        except ClientError as error:
            raise self._as_ours(key, error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StoreRefused(
                f"there are no credentials for {self.place.service}: set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, or give this machine a role"
            ) from error
        except _FAULTS as error:
            raise StoreError(f"blob {key!r}: {error}") from error

    def _as_ours(self, key: str, error: ClientError) -> StoreError:
        code = code_of(error)
        if code in _MISSING:
            return BlobMissing(f"no blob {key!r}")
        if code in ("InvalidRange", "416"):
            return BeyondEnd(f"blob {key!r} is shorter")
        if code in _FULL:
            return StoreFull(f"blob {key!r}: {error}")
        said: dict[str, Any] = dict(error.response.get("Error", {}))
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        refusal = Refusal(
            code=code,
            message=str(said.get("Message", "")),
            region=said.get("Region") or headers.get("x-amz-bucket-region"),
            headers=headers,
        )
        sentence = explain(refusal, self.place)
        return StoreRefused(sentence) if sentence else StoreError(f"blob {key!r}: {error}")


def connect(endpoint_url: str | None, region: str | None, *, silence_s: float) -> Any:  # noqa: ANN401 (untyped)
    """Return a client; raises StoreRefused for an address that cannot be one of a service."""
    # Other services often refuse the checksums that AWS takes with every request.
    checksums: Any = "when_supported" if endpoint_url is None else "when_required"
    try:
        # A session of its own: the default one keeps the first credentials it has seen.
        return boto3.Session().client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=region,
            config=Config(
                signature_version="s3v4",
                retries={"total_max_attempts": 1},
                connect_timeout=min(CONNECT_TIMEOUT_S, silence_s),
                read_timeout=silence_s,
                max_pool_connections=MAX_CONNECTIONS,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreRefused(f"{endpoint_url or 'S3'} is no address of a service: {error}") from error


def _passes(fault: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(fault, NotDeleted):
        return fault.passes
    if isinstance(fault, ClientError):
        return code_of(fault) in _PASSING or status_of(fault) in _PASSING_STATUS
    return isinstance(fault, _BROKEN) and not isinstance(fault, SSLError)


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """Return the service's code of an error; the status where the answer had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))
