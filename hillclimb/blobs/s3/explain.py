"""Explanations of an S3 service's refusals: a sentence that names the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_NEEDED = "s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload"
_REGION = frozenset(
    {
        *("PermanentRedirect", "AuthorizationHeaderMalformed", "301", "307", "Redirect"),
        *("IllegalLocationConstraintException", "IncorrectEndpoint"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """Address of a bucket as configured."""

    bucket: str
    service: str
    """Address of the service, or `AWS`."""
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Refusal:
    """An error as an S3 service reports it."""

    code: str
    message: str
    region: str | None = None
    """Region of the bucket, if the service reports it."""
    headers: Mapping[str, str]


def explain(refusal: S3Refusal, place: BucketAddress) -> str | None:
    """Return the remedy as a sentence; None for an error that no set-up causes."""
    if refusal.code in _REGION:
        right = refusal.region or "another region"
        return (
            f"bucket {place.bucket!r} is in {right}, but the request went to {place.region}: write"
            f" region={refusal.region or 'REGION'} into the store's address"
        )
    if refusal.code == "RequestTimeTooSkewed":
        return (
            f"this machine's clock is {_skew(refusal.headers)} {place.service}, more than it"
            " allows: set the clock (NTP)"
        )
    sentence = _SENTENCES.get(refusal.code)
    return sentence.format(place=place) if sentence else None


def _skew(headers: Mapping[str, str]) -> str:
    try:
        theirs = parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError):
        return "far from that of"
    behind = (theirs - datetime.now(UTC)).total_seconds()
    return f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'}"


_EXPIRED = "the session token of the credentials has expired: renew AWS_SESSION_TOKEN with its keys"
_UNKNOWN_KEY = (
    "{place.service} does not know the access key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    " to those of this service"
)
_DENIED = (
    "{place.service} does not let these credentials do this in bucket {place.bucket!r}: allow"
    f" {_NEEDED}"
)
_SENTENCES = {
    "NoSuchBucket": "there is no bucket {place.bucket!r} at {place.service}: create it, or correct"
    " the store's address (HILLCLIMB_BLOBS_URL)",
    "InvalidBucketName": "{place.bucket!r} is no name of a bucket: correct the store's address",
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: correct"
    " AWS_SECRET_ACCESS_KEY (a proxy that changes the Host header has the same effect)",
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountProblem": _DENIED,
    "403": _DENIED,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _EXPIRED,
}
