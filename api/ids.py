"""Identifiers: a prefix that says what it is, then 26 characters that sort by time of birth."""

from __future__ import annotations

import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: no i, l, o, u."""
RANDOM_BITS = 80


def new_id(prefix: str) -> str:
    """Return `<prefix>_` and a ULID: 48 bits of milliseconds, 80 random bits."""
    value = (time.time_ns() // 1_000_000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    return f"{prefix}_{''.join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))}"
