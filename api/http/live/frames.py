"""Server-sent event frames as bytes, so that one encoding serves every client of a run."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

RETRY = b"retry: 2000\n\n"
"""Makes browsers reconnect two seconds after a broken connection."""
PING = b": ping\n\n"
"""A comment, sent during silence, so that proxies and clients keep the connection open."""
END = b"event: end\ndata: {}\n\n"
"""The last frame of a run's stream; it has no id because it is no event."""


def encode(envelope: Mapping[str, object]) -> bytes:
    """Return the frame of one event: `id` is its `seq`, `event` its `type`, `data` the envelope.

    JSON escapes line breaks, so the data is always one line.
    """
    data = orjson.dumps(envelope, option=orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC)
    head = f"id: {envelope['seq']}\nevent: {envelope['type']}\ndata: "
    return head.encode() + data + b"\n\n"
