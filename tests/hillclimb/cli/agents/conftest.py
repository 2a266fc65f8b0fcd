"""`hillclimb mcp` as a process, against the real application on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from benchmarks.experiments.scripted_agent import Session
from tests.api.fixtures.serving import Served
from tests.hillclimb.cli.conftest import Invoke, from_json

Open = Callable[..., Session]


@pytest.fixture
def agent_key(hc: Invoke) -> Callable[..., dict[str, Any]]:
    """Create an agent key by the command line."""

    def make(num_runs: int = 3, *options: str) -> dict[str, Any]:
        words = ("agent-key", "create", "agent", "--runs", str(num_runs), *options, "--json")
        found: dict[str, Any] = from_json(hc(*words))
        return found

    return make


@pytest.fixture
def open_session(served: Served, agent_key: Callable[..., dict[str, Any]]) -> Iterator[Open]:
    """Start the server with a new agent key."""
    with ExitStack() as stack:

        def start(num_runs: int = 3, *options: str) -> Session:
            key = agent_key(num_runs, *options)["key"]
            environment = os.environ | {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": key}
            return stack.enter_context(Session(environment))

        yield start
