"""Connection to the API of an embedded stack, read from its state directory.

The client imports this: nothing here may import the servers' libraries.
"""

from dataclasses import dataclass
from pathlib import Path

from hillclimb.stack.state.credentials import load_credentials
from hillclimb.stack.state.directory import StateDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """URL and key of a stack's API."""

    url: str
    api_key: str


def connection(state_dir: Path) -> Connection | None:
    """Return URL and first API key of the stack in `state_dir`; None if it never ran."""
    state = StateDirectory(state_dir)
    credentials = load_credentials(state)
    url = state.read().url
    if credentials is None or url is None:
        return None
    return Connection(url=url, api_key=credentials.api_key)
