"""Ranks of tasks, derived from their keys only: the same on every machine and in any order.

They do not depend on hash seeds, dictionary order or locale.
"""

from __future__ import annotations

import hashlib


def salted_rank(key: str, salt: int) -> tuple[int, str]:
    """Return a task's rank in the order of one salt; the key breaks the (unlikely) ties."""
    digest = hashlib.sha256(f"{salt}\n{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big"), key


def md5_share(key: str) -> float:
    """Return the historic script's number in [0, 1] for a key.

    The first 8 bytes of the key's MD5, big-endian, over 2^64.
    """
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
