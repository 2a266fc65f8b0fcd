"""A start of the stack that takes too long."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.stack.control import _await_ready
from hillclimb.stack.errors import ServiceFailed
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord, ServiceState, StackRecord
from hillclimb.stack.system.processes import Identity, identify


@pytest.fixture
def supervisor() -> Iterator[Identity]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        found = identify(process.pid)
        assert found is not None
        yield found
        process.kill()


def service(state: ServiceState) -> ServiceRecord:
    return ServiceRecord(state=state, fingerprint="f", log="a.log", stop_signal=15, stop_s=1.0)


@pytest.mark.parametrize(
    ("services", "missing"),
    [
        ({}, "its supervisor has recorded no service yet"),
        (
            {"postgres": "ready", "migrate": "done", "api": "backoff", "worker": "starting"},
            "api is backoff, worker is starting",
        ),
    ],
)
def test_a_start_that_takes_too_long_names_what_it_waits_for_and_ends_the_supervisor(
    supervisor: Identity, tmp_path: Path, services: dict[str, ServiceState], missing: str
) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    records = {name: service(each) for name, each in services.items()}
    state.write(StackRecord(state="starting", services=records))
    with pytest.raises(ServiceFailed) as raised:
        _await_ready(state, supervisor, 0.2)
    assert str(raised.value) == f"The stack was not ready within 0.2 s: {missing}."
    assert not supervisor.alive()
