"""A model of the Hugging Face hub, and whether it is the hub or the spec that is at fault."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from trainer.errors import ModelUnavailable, StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_COME_AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_SERVER_ERRORS = 500


def fetch(pinned: str, wanted: Sequence[str]) -> Path:
    """Return the directory of `NAME@REVISION` in the hub's cache, with the files of `wanted`.

    Raises:
        ModelUnavailable: there is no such model, or it is not for us.
        StoreUnavailable: the hub does not answer, or asks to come again.
        OSError: no space is left for it.
    """
    # Only runs that start from the hub need its client, which takes a while to import.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    name, _, revision = pinned.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted)))
    except (OSError, ValueError) as fault:
        if isinstance(fault, OSError) and fault.errno in _FULL:
            raise
        kind = StoreUnavailable if _is_away(fault) else ModelUnavailable
        raise kind(f"cannot get {name} at {revision} from the hub: {fault}") from fault


def _is_away(fault: OSError | ValueError) -> bool:
    """Tell whether it may go well later.

    The client says `LocalEntryNotFoundError` of every answer but "there is none" and "not for you",
    and of none, if the files are not in its cache; the cause is what it met.
    """
    from huggingface_hub.errors import (  # noqa: PLC0415
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    met = fault.__cause__ if isinstance(fault, LocalEntryNotFoundError) else fault
    if isinstance(met, HfHubHTTPError):
        status = met.response.status_code
        return status in _COME_AGAIN or status >= _SERVER_ERRORS
    return (
        isinstance(fault, LocalEntryNotFoundError)
        and met is not None
        and not isinstance(met, OfflineModeIsEnabled)
    )
