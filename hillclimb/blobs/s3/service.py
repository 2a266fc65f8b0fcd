"""Requests to an S3 service, with retries of transient faults and translated errors.

We retry every request ourselves, because botocore's retries have no bound in time: after
5xx, throttling, timeouts, broken connections and bodies cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

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
from botocore.loaders import Loader
from botocore.session import Session, get_session
from urllib3.exceptions import HTTPError

from hillclimb.blobs.base import BlobMissing, StoreError, StoreFull, StoreRefused
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.blobs.s3.explain import BucketAddress, S3Refusal, explain

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 16
UNKNOWN = ("NotImplemented", "501", "MissingContentMD5")
"""Codes of an operation that the service does not implement."""
_MISSING = ("NoSuchKey", "404", "NotFound")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507")
_TRANSIENT = frozenset(
    {
        *("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"),
        *("ThrottlingException", "RequestLimitExceeded", "ConditionalRequestConflict"),
        *("OperationAborted", "TooManyRequests", "RequestThrottled"),
    }
)
_TRANSIENT_STATUS = frozenset({429, 500, 502, 503, 504})


class BeyondEnd(StoreError):
    """A range that starts beyond the end of the blob."""


class NotDeleted(Exception):
    """Some keys of a deletion still exist."""

    def __init__(self, failed: Sequence[Mapping[str, str]]) -> None:
        first = failed[0]
        super().__init__(
            f"{len(failed)} could not be deleted, the first {first.get('Key')!r}:"
            f" {first.get('Code')} {first.get('Message', '')}".rstrip()
        )
        self.is_transient = all(each.get("Code") in _TRANSIENT for each in failed)


_FAULTS = (ClientError, BotoCoreError, HTTPError, NotDeleted)
"""Errors of a request; botocore raises urllib3's where an error's body is cut short."""
_BROKEN = (HTTPClientError, HTTPError, IncompleteReadError, ConnectionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Service:
    """One bucket of a service, with its retry policy."""

    client: Any
    place: BucketAddress
    retry: RetryPolicy

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

        return self.call(full_key, attempt)

    def pages(
        self, operation: str, prefix: str, marks: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        """Yield every page of a listing.

        `marks`: parameters of the next page's request, by the fields of the reply that hold them.
        """
        where: dict[str, str] = {}

        def attempt(_: int) -> dict[str, Any]:
            ask = getattr(self.client, operation)
            reply: dict[str, Any] = ask(Bucket=self.bucket, Prefix=prefix, **where)
            return reply

        while True:
            page = self.call(prefix, attempt)
            yield page
            if not page.get("IsTruncated"):
                return
            where = {name: page[field] for name, field in marks.items() if field in page}

    def call(self, subject: str, attempt: Callable[[int], T]) -> T:
        """Return what `attempt(number)` returns, retried while its faults are transient.

        Raises:
            StoreError: the last fault, or the first that is not transient, named with `subject`.
        """
        with self.translated(subject):
            return self.retry.call(attempt, faults=_FAULTS, is_transient=_is_transient)

    @contextmanager
    def translated(self, key: str) -> Iterator[None]:
        """Translate botocore's errors in the block into ours."""
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
        details: dict[str, Any] = dict(error.response.get("Error", {}))
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        refusal = S3Refusal(
            code=code,
            message=str(details.get("Message", "")),
            region=details.get("Region") or headers.get("x-amz-bucket-region"),
            headers=headers,
        )
        sentence = explain(refusal, self.place)
        return StoreRefused(sentence) if sentence else StoreError(f"blob {key!r}: {error}")


def connect(endpoint_url: str | None, region: str | None, *, silence_s: float) -> Any:  # noqa: ANN401 (untyped)
    """Return a client; raises StoreRefused for an address that cannot be one of a service."""
    # Other services often refuse the checksums that AWS takes with every request.
    checksums: Any = "when_supported" if endpoint_url is None else "when_required"
    try:
        return _session().create_client(
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


def _session() -> Session:
    """Return a session with credentials read now, and botocore's files read once per process.

    Without the latter a client costs six times as much processor time.
    """
    session = get_session()
    session.register_component("data_loader", _model_files())
    return session


@cache
def _model_files() -> Loader:
    loader: Loader = get_session().get_component("data_loader")
    return loader


def _is_transient(fault: Exception) -> bool:
    """Tell whether the same request may succeed a little later."""
    if isinstance(fault, NotDeleted):
        return fault.is_transient
    if isinstance(fault, ClientError):
        return code_of(fault) in _TRANSIENT or status_of(fault) in _TRANSIENT_STATUS
    return isinstance(fault, _BROKEN) and not isinstance(fault, SSLError)


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """Return the service's code of an error; the status where the response had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))
