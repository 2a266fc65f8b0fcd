"""Recognises gzip by a file's first bytes: a name says nothing about what somebody sent."""

from __future__ import annotations

GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of every gzip file (RFC 1952, 2.3.1)."""
