"""Starts of the stack: the ports that one keeps, and one that takes too long."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.stack import control
from hillclimb.stack.control import _await_ready, up
from hillclimb.stack.errors import PortConflict, ServiceFailed, StackError
from hillclimb.stack.options import StackOptions
from hillclimb.stack.plan import StackPlan, make_plan
from hillclimb.stack.servers.sky import find_sky_port, queue_port
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord, ServiceState, StackRecord
from hillclimb.stack.supervisor.supervisor import Supervisor
from hillclimb.stack.system import ports
from hillclimb.stack.system.ports import LOOPBACK, find_free, is_free, reserve
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


def test_a_stack_that_runs_keeps_its_ports_for_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stacks that start at once could take the same port: the API of one would never start."""
    names = {"api", "postgres", "valkey", "sky-api"}
    few: set[int] = set()
    while len(few) < len(names):
        few.add(find_sky_port(excluded=few))
    monkeypatch.setattr(ports, "CHOSEN", sorted(few))

    def run(supervisor: Supervisor) -> int:
        assert supervisor.ports.keys() == names
        with pytest.raises(StackError, match="No port"):
            find_free()
        kept = [*supervisor.ports.values(), queue_port(supervisor.ports["sky-api"])]
        for port in kept:
            assert not is_free(port)
            with pytest.raises(OSError, match="in use"), socket.socket() as other:
                other.bind((LOOPBACK, port))
            for _ in range(2):  # the second one beside the first one's connection in TIME_WAIT
                serve_one(port)
        return 7

    monkeypatch.setattr(Supervisor, "run", run)
    options = StackOptions(state_dir=tmp_path.resolve() / "state", api_port=0, with_sky=True)
    assert up(options, say=lambda _: None) == 7
    assert all(is_free(port) for port in few)


def test_a_stack_takes_no_port_of_one_that_starts(tmp_path: Path) -> None:
    """Both would have the API's usual port."""
    first, second = (StackOptions(state_dir=tmp_path.resolve() / name) for name in "ab")
    plan = make_plan(first)
    with reserve(plan.all_ports):
        assert set(plan.all_ports).isdisjoint(make_plan(second).all_ports)
        with pytest.raises(StackError, match=f"Port {plan.api_port} for api is in use"):
            make_plan(replace(second, api_port=plan.api_port))


def test_a_stack_chooses_anew_where_another_one_was_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    started: list[dict[str, int]] = []
    with ExitStack() as other:

        def plan_and_lose(options: StackOptions) -> StackPlan:
            plan = make_plan(options)
            if not lost:
                lost.append(plan.api_port)
                other.enter_context(reserve(lost))
            return plan

        monkeypatch.setattr(control, "make_plan", plan_and_lose)
        monkeypatch.setattr(Supervisor, "run", lambda self: started.append(self.ports) or 0)
        assert up(StackOptions(state_dir=tmp_path.resolve() / "state"), say=lambda _: None) == 0
    assert lost[0] not in started[0].values()


def test_a_stack_whose_port_stays_another_ones_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(StackOptions(state_dir=tmp_path.resolve() / "state"))
    monkeypatch.setattr(control, "make_plan", lambda _: plan)
    with reserve([plan.api_port]), pytest.raises(PortConflict, match=f" port {plan.api_port};"):
        up(plan.options, say=lambda _: None)


def serve_one(port: int) -> None:
    """Start a server at the port, which ends its one connection."""
    with (
        socket.create_server((LOOPBACK, port)) as server,
        socket.create_connection((LOOPBACK, port)) as client,
    ):
        accepted, _ = server.accept()
        accepted.close()
        assert client.recv(1) == b""
