"""Finds the service by the environment, or by the state directory of an embedded stack."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hillclimb.client.errors import NotConfigured
from hillclimb.stack.control import Connection, connection
from hillclimb.stack.state.directory import find_state_directory


def find_connection(
    cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Connection:
    """Return the service to connect to.

    Raises:
        NotConfigured: neither `HILLCLIMB_API_URL` and `HILLCLIMB_API_KEY` are set, nor is there
            the state directory of an embedded stack.
    """
    environment = os.environ if environment is None else environment
    url, key = environment.get("HILLCLIMB_API_URL"), environment.get("HILLCLIMB_API_KEY")
    if not (url and key):
        embedded = connection(find_state_directory(environment, cwd or Path.cwd()))
        url = url or (embedded.url if embedded else None)
        key = key or (embedded.api_key if embedded else None)
    if not (url and key):
        raise NotConfigured(
            "no Hillclimb service is configured: start one with `hillclimb up`, or set"
            " HILLCLIMB_API_URL and HILLCLIMB_API_KEY"
        )
    return Connection(url=url.rstrip("/"), api_key=key)
