"""Every random draw of a run comes from a seed that names it, so order never matters."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2^63) for a draw, such as (run seed, step, task key, sample, turn)."""
    name = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
