"""Opaque cursors of lists: signed, and bound to the filters of the list they belong to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping

from api.runs.errors import CursorRejected

SIGNATURE_BYTES = 16


def sign_cursor(position: list[str], filters: Mapping[str, object], *, secret: str) -> str:
    """Return a cursor for `position` that only a list with the same filters accepts."""
    payload = json.dumps(position, separators=(",", ":")).encode()
    signature = _signature(payload, filters, secret)
    return base64.urlsafe_b64encode(signature + payload).decode().rstrip("=")


def read_cursor(cursor: str, filters: Mapping[str, object], *, secret: str) -> list[str]:
    """Return the position in a cursor.

    Raises CursorRejected for a cursor that was altered, forged, or created for other filters.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorRejected("The cursor was not created by this service.") from error
    signature, payload = raw[:SIGNATURE_BYTES], raw[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(payload, filters, secret)):
        raise CursorRejected("The cursor belongs to a list with other filters, or was altered.")
    position: list[str] = json.loads(payload)
    return position


def _signature(payload: bytes, filters: Mapping[str, object], secret: str) -> bytes:
    scope = json.dumps(filters, sort_keys=True, default=str).encode()
    digest = hmac.new(secret.encode(), scope + b"\n" + payload, hashlib.sha256).digest()
    return digest[:SIGNATURE_BYTES]
