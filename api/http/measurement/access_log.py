"""The access log of uvicorn, without the codes that sign people in."""

from __future__ import annotations

import logging

ACCESS = "uvicorn.access"
SIGN_IN = "/login"
"""Paths with this beginning have one-time codes in their queries: ours, and a provider's."""


class _HiddenQueries(logging.Filter):
    """Replaces the queries of sign-in addresses: who reads the log cannot sign in with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; true, as every request is logged."""
        match record.args:
            case (client, method, str(target), *rest) if target.startswith(SIGN_IN):
                path, mark, _ = target.partition("?")
                record.args = (client, method, f"{path}?…" if mark else path, *rest)
        return True


_FILTER = _HiddenQueries()


def hide_codes() -> None:
    """Hide codes in this process's access log; idempotent."""
    logging.getLogger(ACCESS).addFilter(_FILTER)
