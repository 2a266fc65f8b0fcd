"""Control of the stack for the command line: up, down and status."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from hillclimb.stack.errors import PortConflict, ServiceFailed, StackError, StackRunning
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.plan import StackPlan, make_plan
from hillclimb.stack.services import services
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord, ServiceState, StackRecord
from hillclimb.stack.supervisor.supervisor import Supervisor
from hillclimb.stack.supervisor.sweep import sweep
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import reserve
from hillclimb.stack.system.processes import Identity, identify, stop_process

# Servers, migration and the rest start one after another, each with a deadline of its own.
UP_DEADLINE_S = 600.0
# On top of the services' own deadlines: kills, the sweep, a busy machine.
DOWN_SLACK_S = 60.0

PLANS = 5
"""Of one start, while other stacks that start at once take its ports."""

STARTED: tuple[ServiceState, ...] = ("ready", "done")
"""States in which a start waits for a service no longer."""

Say = Callable[[str], None]


def up(options: StackOptions, *, say: Say) -> int:
    """Run the stack in the foreground until SIGINT, SIGTERM or SIGHUP; return the exit code.

    Raises StackRunning when another supervisor has locked the state directory, StackError for
    options that cannot be satisfied.
    """
    state = StateDirectory(options.state_dir)
    state.create()
    with state.hold(), ExitStack() as sockets:
        plan = _plan_and_reserve(options, sockets)
        if not options.find_trainer_python().exists():
            say(
                f"warning: no trainer interpreter at {options.find_trainer_python()}; runs will "
                "wait until `make setup` has created it"
            )
        supervisor = Supervisor(specs=services(plan), directory=state, say=say, ports=plan.ports)
        return supervisor.run()


def _plan_and_reserve(options: StackOptions, sockets: ExitStack) -> StackPlan:
    """Plan a start whose ports no other stack takes before their servers start, or restart.

    A stack that starts at once may have chosen the same ones: they are not free for the next plan.
    Raises PortConflict when every plan had such a port.
    """
    for _ in range(PLANS - 1):
        plan = make_plan(options)
        with suppress(PortConflict):
            sockets.enter_context(reserve(plan.all_ports))
            return plan
    plan = make_plan(options)
    sockets.enter_context(reserve(plan.all_ports))
    return plan


def up_detached(
    options: StackOptions, *, say: Say, deadline_s: float = UP_DEADLINE_S
) -> StackRecord:
    """Start the supervisor in the background; return the record once every service is ready.

    Waits for a stack that is already running. Raises StackError where that has another port than
    the options name, and ServiceFailed with the reason when a service does not start or
    `deadline_s` passes (the stack is then stopped again).
    """
    state = StateDirectory(options.state_dir)
    state.create()
    running = state.read()
    if running.supervised():
        assert running.supervisor is not None
        _refuse_other_port(options, running)
        say("stack: already running")
        return _await_ready(state, running.supervisor.identity, deadline_s)
    log = state.log("supervisor")
    offset = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hillclimb.stack"],
            cwd=CODE_ROOT,
            env={**os.environ, **options.as_environment()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    child = identify(process.pid)
    try:
        return _await_ready(state, child, deadline_s)
    except ServiceFailed as error:
        text = log.read_bytes()[offset:].decode(errors="replace").strip()
        now = state.read()
        reason = now.error if now != running else text[-2000:]
        raise ServiceFailed(reason or str(error)) from error
    finally:
        # The supervisor outlives this process on purpose: set a return code so nobody waits for it.
        process.returncode = process.poll() or 0


def down(state_dir: Path, *, say: Say) -> bool:
    """Stop all processes of the stack, whatever its state; return True if there were any.

    Signals a live supervisor and waits for it. Without one, the recorded services that still run
    are stopped in reverse order (the runner first), then all other processes with the stack's mark.
    Returns when no process of the stack is left. Raises StackError when the supervisor does not
    exit.
    """
    state = StateDirectory(state_dir)
    if not state_dir.is_dir():
        return False
    record = state.read()
    stopped = False
    if record.supervised():
        assert record.supervisor is not None
        _stop_supervisor(record, record.supervisor.identity, say)
        stopped = True
    try:
        with state.hold():
            return _clean_up(state, say) or stopped
    except StackRunning:
        raise StackError(
            f"Another process has locked {state_dir} (a starting stack?); try again."
        ) from None


def status(state_dir: Path) -> StackRecord:
    """Return the record, corrected by the processes that are alive now."""
    record = StateDirectory(state_dir).read()
    alive = record.supervised()
    corrected = {
        name: service if _as_recorded(service) else _dead(service)
        for name, service in record.services.items()
    }
    state = record.state
    if not alive and state not in ("stopped", "failed"):
        state = "stopped"
    return record.model_copy(
        update={
            "services": corrected,
            "state": state,
            "supervisor": record.supervisor if alive else None,
        }
    )


def _refuse_other_port(options: StackOptions, running: StackRecord) -> None:
    port = running.ports.get("api")
    if options.api_port and port is not None and options.api_port != port:
        raise StackError(
            f"The stack is running with its API on port {port}: `hillclimb down` first, then `up`"
            f" with port {options.api_port}."
        )


def _await_ready(
    state: StateDirectory, supervisor: Identity | None, deadline_s: float
) -> StackRecord:
    if supervisor is None:
        raise ServiceFailed("The supervisor exited immediately.")

    def decided() -> bool:
        return not supervisor.alive() or _ready(state.read(), supervisor)

    in_time = wait_until(decided, deadline_s=deadline_s)
    record = state.read()
    if _ready(record, supervisor):
        return record
    if not in_time:
        stop_process(supervisor, signal.SIGTERM, deadline_s=DOWN_SLACK_S)
        raise ServiceFailed(
            f"The stack was not ready within {deadline_s:g} s: {_not_ready(record)}."
        )
    raise ServiceFailed("The supervisor exited before the stack was ready.")


def _not_ready(record: StackRecord) -> str:
    """Name the services that a start still waits for, with the state of each."""
    states = {name: service.state for name, service in record.services.items()}
    missing = [f"{name} is {state}" for name, state in states.items() if state not in STARTED]
    return ", ".join(missing) or "its supervisor has recorded no service yet"


def _ready(record: StackRecord, supervisor: Identity) -> bool:
    mine = record.supervisor is not None and record.supervisor.pid == supervisor.pid
    return mine and record.state == "ready"


def _stop_supervisor(record: StackRecord, supervisor: Identity, say: Say) -> None:
    say(f"supervisor: stopping pid {supervisor.pid}")
    os.kill(supervisor.pid, signal.SIGTERM)
    limit = DOWN_SLACK_S + sum(service.stop_s for service in record.services.values())
    if not wait_until(lambda: not supervisor.alive(), deadline_s=limit):
        raise StackError(
            f"The supervisor (pid {supervisor.pid}) did not stop within {limit:.0f} s; "
            f"kill it with `kill -9 {supervisor.pid}` and run `hillclimb down` again."
        )
    for name, service in reversed(record.services.items()):
        if service.process is not None:
            say(f"{name}: stopped (pid {service.process.pid})")


def _clean_up(state: StateDirectory, say: Say) -> bool:
    record = state.read()
    stopped = False
    for name, service in reversed(record.services.items()):
        if service.process is None or not service.process.identity.alive():
            continue
        signal_number = signal.Signals(service.stop_signal)
        obeyed = stop_process(service.process.identity, signal_number, deadline_s=service.stop_s)
        say(f"{name}: {'stopped' if obeyed else 'killed'} (pid {service.process.pid})")
        stopped = True
    for line in sweep(state.path):
        say(line)
        stopped = True
    if stopped or record.supervisor is not None:
        dead = {name: _dead(service) for name, service in record.services.items()}
        update = {"state": "stopped", "supervisor": None, "services": dead}
        state.write(record.model_copy(update=update))
    return stopped


def _as_recorded(service: ServiceRecord) -> bool:
    return service.process is None or service.process.identity.alive()


def _dead(service: ServiceRecord) -> ServiceRecord:
    state = "done" if service.state == "done" else "stopped"
    return service.model_copy(update={"state": state, "process": None, "ready_at": None})
