"""Signatures of Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_signing_secret() -> str:
    """Return a new secret, which its receiver needs to check signatures."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(secret: str, message_id: str, body: bytes, *, now: datetime) -> dict[str, str]:
    """Return the headers of a message; the time is that of the try, so each has its own."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    timestamp = str(int(now.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }
