"""The numbers that decide about a task by its key alone: the same on every machine, in any order.

No hash seed, order of a dictionary or locale enters them.
"""

from __future__ import annotations

import hashlib


def salted_rank(key: str, salt: int) -> tuple[int, str]:
    """Return a task's place in the order of one salt; the key parts the (unlikely) equal ones."""
    digest = hashlib.sha256(f"{salt}\n{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big"), key


def md5_share(key: str) -> float:
    """Return the number in [0, 1] that the historic script gives a key.

    The first 8 bytes of the key's MD5, big-endian, over 2^64.
    """
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
