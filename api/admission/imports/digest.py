"""Digest of what is imported: the same content under the same options, wherever it lay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def import_digest(files: Mapping[str, str], options: Mapping[str, object]) -> str:
    """Return the SHA-256 over the names and digests of files, and the options that change rows."""
    content = {"files": dict(files), "options": dict(options)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
