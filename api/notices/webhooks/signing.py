"""Signatures of Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_signing_secret() -> str:
    """Return a new secret, which its receiver needs to check signatures."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(
    secrets_in_force: Sequence[str], message_id: str, body: bytes, *, now: datetime
) -> dict[str, str]:
    """Return the headers of a message; the time is that of the try, so each has its own.

    There is a signature by each secret, with spaces between: a receiver that knows one of them
    accepts the message.
    """
    timestamp = str(int(now.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(each, signed) for each in secrets_in_force),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
