"""Finds the service: by the environment, the state directory of a stack, or the user's login."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from hillclimb.client.errors import NotConfigured
from hillclimb.stack.errors import StateUnusable
from hillclimb.stack.state.connection import Connection, connection
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
            the state directory of an embedded stack; or the key, or the directory, cannot be one.
    """
    environment = os.environ if environment is None else environment
    url, key = (environment.get(name, "").strip() or None for name in (URL, KEY))
    if not (url and key):
        embedded = _embedded(environment, cwd or Path.cwd())
        url = url or (embedded.url if embedded else None)
        key = key or (embedded.api_key if embedded else None)
    if not (url and key) and (stored := _stored_login(login_file(environment))) is not None:
        url, key = url or stored.url, key or stored.api_key
    if not (url and key):
        raise NotConfigured(
            "no Hillclimb service is configured: start one with `hillclimb up`, sign in to one with"
            " `hillclimb login`, or set HILLCLIMB_API_URL and HILLCLIMB_API_KEY"
        )
    return checked_connection(url, key)


def _embedded(environment: Mapping[str, str], cwd: Path) -> Connection | None:
    try:
        return connection(find_state_directory(environment, cwd))
    except StateUnusable as error:
        raise NotConfigured(str(error)) from error


def checked_connection(url: str, key: str) -> Connection:
    """Return the connection of an address and a key, without blanks around them.

    Raises:
        NotConfigured: one of them is none.
    """
    url, key = url.strip(), key.strip()
    _check(url, key)
    return Connection(url=url.rstrip("/"), api_key=key)


def login_file(environment: Mapping[str, str] | None = None) -> Path:
    """Return the file of `hillclimb login`: address and key of a service."""
    environment = os.environ if environment is None else environment
    config = environment.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(config) / "hillclimb" / "login.json"


def store_login(service: Connection) -> Path:
    """Write address and key to a file that only this user can read; return it.

    Raises:
        OSError: it cannot be written.
    """
    file = login_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump({"url": service.url, "api_key": service.api_key}, stream)
    partial.replace(file)
    return file


def forget_login() -> bool:
    """Delete the file of `login`; return True if it was there."""
    file = login_file()
    was_there = file.exists()
    file.unlink(missing_ok=True)
    return was_there


def _stored_login(file: Path) -> Connection | None:
    try:
        stored = json.loads(file.read_text())
        return Connection(url=str(stored["url"]), api_key=str(stored["api_key"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise NotConfigured(
            f"{file} cannot be read: sign in again with `hillclimb login`"
        ) from error


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
