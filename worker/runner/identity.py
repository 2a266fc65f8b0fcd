"""The identity of a runner: a random token in its state directory, which no other runner has.

Written before the first registration, so that a lost answer or a restart changes nothing.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

FILE = "identity"


def own_identity(folder: Path) -> str:
    """Return the identity of the runner whose files are in the folder; made at the first call.

    The runner is the only one that uses the folder (`only_one`). Raises OSError.
    """
    file = folder / FILE
    try:
        if token := file.read_text().strip():
            return token
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(32)
    fresh = file.with_suffix(".tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(token)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    return token
