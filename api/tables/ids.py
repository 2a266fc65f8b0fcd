"""Identifiers: a prefix for the kind of object, then a ULID, which sorts by creation time."""

from __future__ import annotations

import secrets
import time
import zlib
from datetime import UTC, datetime

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: no i, l, o, u."""
RANDOM_BITS = 80
ULID_CHARS = 26
MAX_MS = 253_402_300_800_000
"""The year 10000, where dates end."""


def new_id(prefix: str) -> str:
    """Return `<prefix>_` and a ULID: 48 bits of milliseconds, 80 random bits."""
    value = (time.time_ns() // 1_000_000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    return f"{prefix}_{''.join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))}"


def born_at(identifier: str) -> datetime | None:
    """Return the creation time of an id (UTC, to the millisecond), or None for another string."""
    _, _, ulid = identifier.rpartition("_")
    if len(ulid) != ULID_CHARS or not set(ulid) <= set(ALPHABET):
        return None
    value = 0
    for character in ulid:
        value = value << 5 | ALPHABET.index(character)
    milliseconds = value >> RANDOM_BITS
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds < MAX_MS else None


def lock_key(project_id: str) -> int:
    """Return a project's second key of an advisory lock, a signed integer of 32 bits.

    Two projects may share one: then they wait for each other, and no more.
    """
    return zlib.crc32(project_id.encode()) - 2**31
