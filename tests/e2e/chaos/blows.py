"""The blows, and what brings a part back: the supervisor, `hillclimb up`, or whoever runs it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from threading import Event

import httpx
import psutil
import redis

from api.runs.deadlines import RUNNER_LEASE_S
from hillclimb.stack.control import status, up_detached
from hillclimb.stack.state.credentials import load_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.system.processes import owned_by
from tests.e2e.chaos.cells import SUPERVISED, Blow, Cell, Part, Phase
from tests.e2e.chaos.phases import service_process
from tests.e2e.chaos.stage import MAY_BE_ANSWERED, Stage, family, frozen

STOP_S = 6.0
"""Longer than heartbeats and polls, shorter than leases (`api/runs/deadlines.py`)."""
NUM_CLIENTS, CLIENT_PAUSE_S = 4, 0.25
"""Three requests of each client in a pause and the time they take: below a key's rate."""
RAY_ACTORS = {Part.ENGINE: "EngineActor", Part.RANK: "LearnerActor", Part.ROLLOUTS: "RolloutActor"}
UNRESPONSIVE_S = 14.0
"""Longer than the ping after which a worker of Ray's counts as dead (docs/deadlines.md)."""
SLEEP_S = RUNNER_LEASE_S + 10.0
HOUR_S = 3600
CLOCK_READ_S = 3.0
"""Every process has read the clock again (`strains.py`), and a sweep was due."""
FULL_S = 10.0
TRIAL = "trainer.jobs.train.qualification"


def strike(stage: Stage, cell: Cell) -> None:
    """Hit the part, and wait until it, or what replaces it, is there again."""
    STRIKES[cell.blow](stage, cell)


def kill(stage: Stage, cell: Cell) -> None:
    if cell.part is Part.HOST:
        cut_power(stage)
        return
    victim = process_of(stage, cell.part)
    victim.send_signal(signal.SIGKILL)
    if cell.part is Part.MACHINE:
        process_of(stage, Part.TRAINER).send_signal(signal.SIGKILL)
    goes_on = cell.phase is Phase.RUNNING and cell.part in (*SUPERVISED, Part.SUPERVISOR)
    with trained_on(stage) if goes_on else nullcontext():
        await_return(stage, cell.part, victim)


def cut_power(stage: Stage) -> None:
    """Kill every process of the stack before any can act on another's end; then start it again."""
    options = stage.service.options
    while owned := [identity.pid for identity, _ in owned_by(options.state_dir)]:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in owned:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
    up_detached(options, say=lambda _line: None)


def stop(stage: Stage, cell: Cell) -> None:
    victim = process_of(stage, cell.part)
    # Trainers are children of the runner, services of the supervisor: they are other parts.
    alone = cell.part in (Part.RUNNER, Part.SUPERVISOR, Part.TRAINER)
    short_s = UNRESPONSIVE_S if cell.part in RAY_ACTORS else STOP_S
    seconds = SLEEP_S if cell.blow is Blow.SLEEP else short_s
    with frozen(*([victim] if alone else family(victim))):
        if cell.part in RAY_ACTORS:
            # It stands still in the phase; here it has to notice.
            stage.await_trainer().resume()
        time.sleep(seconds)


def restart(stage: Stage, cell: Cell) -> None:
    """Ask the part to end; the supervisor starts it anew.

    PostgreSQL shuts down fast: sessions are ended, transactions rolled back.
    """
    victim = process_of(stage, cell.part)
    number = signal.SIGINT if cell.part is Part.POSTGRES else signal.SIGTERM
    with under_load(stage):
        victim.send_signal(number)
        await_return(stage, cell.part, victim)


def flush(stage: Stage, cell: Cell) -> None:
    del cell
    state_dir = stage.service.options.state_dir
    credentials = load_credentials(StateDirectory(state_dir))
    assert credentials is not None
    port = status(state_dir).ports["valkey"]
    with redis.Redis(port=port, password=credentials.valkey_password) as broker:
        broker.flushall()


def repeat(stage: Stage, cell: Cell) -> None:
    """Send the trainer's events, with its token: twice, backwards, with a hole in the middle."""
    del cell
    trainer = stage.trainer()
    assert trainer is not None
    token = trainer.environ()["HILLCLIMB_ATTEMPT_TOKEN"]
    lines = stage.where().events.read_bytes().split(b"\n")[:-1]
    after = json.loads(lines[-1])["trainer_seq"]
    future = json.dumps(json.loads(lines[-1]) | {"trainer_seq": after + 1000}).encode()
    for batch in (lines, lines, lines[::-1], lines[:2] + lines[4:], [*lines[3:], future]):
        answer = stage.service.http.post(
            "/v1/ingest",
            content=b'{"events":[' + b",".join(batch) + b"]}",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        assert answer.status_code == 200, answer.text


def set_clock(stage: Stage, cell: Cell) -> None:
    """Set every clock by an hour; where a run trains it has to go on meanwhile."""
    assert stage.strains is not None
    assert stage.strains.clock is not None
    stage.strains.clock.set_by(HOUR_S if cell.blow is Blow.FORWARD else -HOUR_S)
    if cell.phase is not Phase.RUNNING:
        time.sleep(CLOCK_READ_S)
        return
    trainer = stage.await_trainer()
    # A trainer that says nothing, in an attempt that its runner holds: longer than any lease.
    with frozen(trainer):
        time.sleep(SLEEP_S)
        assert stage.run()["status"] == "running"


def fill_disk(stage: Stage, cell: Cell) -> None:
    """Leave no byte free for longer than heartbeats, polls and retries."""
    del cell
    assert stage.strains is not None
    assert stage.strains.disk is not None
    trainer = stage.trainer()
    assert trainer is not None
    with stage.strains.disk.full():
        # In some phases it stands still; here it has to meet the full disk.
        trainer.resume()
        time.sleep(FULL_S)


STRIKES: Mapping[Blow, Callable[[Stage, Cell], None]] = {
    Blow.KILL: kill,
    Blow.STOP: stop,
    Blow.SLEEP: stop,
    Blow.RESTART: restart,
    Blow.FLUSH: flush,
    Blow.REPEAT: repeat,
    Blow.FORWARD: set_clock,
    Blow.BACK: set_clock,
    Blow.FULL: fill_disk,
}


def process_of(stage: Stage, part: Part) -> psutil.Process:
    """The process of a part, now."""
    if part in SUPERVISED:
        return service_process(stage, SUPERVISED[part])
    if part is Part.MACHINE:
        return service_process(stage, "runner")
    if part is Part.SUPERVISOR:
        return psutil.Process(stage.service.supervisor())
    if part is Part.ENVIRONMENTS:
        return stage.environments.process
    trainer = stage.await_trainer()
    if part is Part.TRAINER:
        return trainer
    below = trainer.children(recursive=True)
    if part is Part.TRIAL:
        return next(each for each in below if TRIAL in " ".join(each.cmdline()))
    return next(each for each in below if each.name().startswith(f"ray::{RAY_ACTORS[part]}"))


def is_alive(process: psutil.Process) -> bool:
    """False once it has exited, also before its parent has asked how."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def await_return(stage: Stage, part: Part, victim: psutil.Process) -> None:
    """Wait for the next process of a part that was killed; a trainer's parts are its own affair."""
    if part in SUPERVISED or part is Part.MACHINE:
        name = SUPERVISED.get(part, "runner")
        service = stage.service

        def is_back() -> bool:
            # One look: a service that dies between two has no process.
            record = status(service.options.state_dir).services[name]
            process = record.process
            return record.state == "ready" and process is not None and process.pid != victim.pid

        stage.until(is_back)
    elif part is Part.SUPERVISOR:
        options = stage.service.options
        # A supervisor that has not died yet would be taken for one that runs.
        stage.until(lambda: not is_alive(victim))
        up_detached(options, say=lambda _line: None)
    elif part is Part.ENVIRONMENTS:
        stage.environments.start()


@contextmanager
def trained_on(stage: Stage) -> Iterator[None]:
    """Let the trainer work for a few events, then halt it: it would finish before a part is back.

    A part that is back earlier finds a run at work.
    """
    trainer = stage.await_trainer()
    num_events = len(stage.written())
    stage.until(lambda: len(stage.written()) > num_events + 2)
    with frozen(trainer):
        yield


@contextmanager
def under_load(stage: Stage) -> Iterator[None]:
    """Clients read and write all the time; none may be answered by anything but 2xx or 503."""
    done, odd = Event(), list[str]()
    headers = dict(stage.service.http.headers)
    url = stage.service.http.base_url

    def client(number: int) -> None:
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=20.0) as http:
            while not done.wait(CLIENT_PAUSE_S):
                try:
                    answers = [
                        http.get("/v1/runs"),
                        http.get(f"/v1/runs/{stage.run_id}/metrics"),
                        http.patch(f"/v1/runs/{stage.run_id}", json={"note": str(number)}),
                    ]
                except httpx.HTTPError:
                    continue
                odd.extend(each.text for each in answers if each.status_code not in MAY_BE_ANSWERED)

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        working = [pool.submit(client, number) for number in range(NUM_CLIENTS)]
        try:
            yield
        finally:
            done.set()
    for each in working:
        each.result()
    assert odd == []
