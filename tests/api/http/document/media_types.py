"""Tells schemathesis how to send files; it runs in `.venv-peers` and imports nothing of ours."""

from __future__ import annotations

import schemathesis


@schemathesis.serializer("application/zip", "application/gzip", "application/x-ndjson")
def as_file(ctx: schemathesis.SerializationContext, value: object) -> bytes:
    """Return the bytes of a file."""
    del ctx
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else str(data).encode(errors="replace")
