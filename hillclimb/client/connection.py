"""Finds the service by the environment, or by the state directory of an embedded stack."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hillclimb.client.errors import NotConfigured
from hillclimb.stack.control import Connection, connection
from hillclimb.stack.state.directory import find_state_directory

URL, KEY = "HILLCLIMB_API_URL", "HILLCLIMB_API_KEY"
_HEADER_VALUE = re.compile(r"[!-~]+")
_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def find_connection(
    cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Connection:
    """Return the service to connect to.

    Raises:
        NotConfigured: neither `HILLCLIMB_API_URL` and `HILLCLIMB_API_KEY` are set, nor is there
            the state directory of an embedded stack; or the key cannot be one.
    """
    environment = os.environ if environment is None else environment
    url, key = (environment.get(name, "").strip() or None for name in (URL, KEY))
    if not (url and key):
        embedded = connection(find_state_directory(environment, cwd or Path.cwd()))
        url = url or (embedded.url if embedded else None)
        key = key or (embedded.api_key if embedded else None)
    if not (url and key):
        raise NotConfigured(
            "no Hillclimb service is configured: start one with `hillclimb up`, or set"
            " HILLCLIMB_API_URL and HILLCLIMB_API_KEY"
        )
    _check(url, key)
    return Connection(url=url.rstrip("/"), api_key=key)


def _check(url: str, key: str) -> None:
    """Refuse values that no request can carry, without printing the key.

    Raises:
        NotConfigured: a sentence that names the variable.
    """
    if not _HEADER_VALUE.fullmatch(key):
        raise NotConfigured(
            f"{KEY} has a space, a line break or a letter that no key has: copy the key again"
        )
    if not _ADDRESS.fullmatch(url):
        raise NotConfigured(f"{URL} is {url!r}: write it as http://HOST:PORT or https://HOST")
