"""Downloads from the Hugging Face hub; tells an outage of the hub from a fault of the spec."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from hillclimb.blobs.base import DISK_FULL
from trainer.errors import ModelUnavailable, StoreUnavailable

_RETRY_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_SERVER_ERRORS = 500


def fetch(pinned: str, patterns: Sequence[str]) -> Path:
    """Return the directory of `NAME@REVISION` in the hub's cache, with files like `patterns`.

    Raises:
        ModelUnavailable: there is no such model, or access is denied.
        StoreUnavailable: the hub does not answer, or is overloaded.
        OSError: no space is left for it.
    """
    # Only runs that start from the hub need its client, which takes a while to import.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    name, _, revision = pinned.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except (OSError, ValueError) as fault:
        if isinstance(fault, OSError) and fault.errno in DISK_FULL:
            raise
        kind = StoreUnavailable if _is_outage(fault) else ModelUnavailable
        raise kind(f"cannot get {name} at {revision} from the hub: {fault}") from fault


def _is_outage(fault: OSError | ValueError) -> bool:
    """Tell whether a later request may succeed.

    The client raises `LocalEntryNotFoundError` for every answer but 404 and 403, and for no answer,
    if the files are not in its cache; the real error is the cause.
    """
    from huggingface_hub.errors import (  # noqa: PLC0415
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    cause = fault.__cause__ if isinstance(fault, LocalEntryNotFoundError) else fault
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        return status in _RETRY_LATER or status >= _SERVER_ERRORS
    return (
        isinstance(fault, LocalEntryNotFoundError)
        and cause is not None
        and not isinstance(cause, OfflineModeIsEnabled)
    )
