"""A mistake of the node is not the trainer's: it goes on, or leaves as it does at any stop."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.process.identity import (
    ATTEMPT_VARIABLE,
    HOME_VARIABLE,
    TrainerProcess,
    start_detached,
)
from hillclimb.protocol.launch import Action, EndReport, NodePlan
from hillclimb.protocol.rundir import AttemptDir
from trainer.node.head import Head
from trainer.node.settings import NodeSettings
from trainer.node.state.journal import NodeJournal

TRAINER = """
import pathlib, signal, sys, time
def leave(*_):
    with open("events.jsonl", "a") as events:
        events.write('{"trainer_seq": 2}\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path("events.jsonl").write_text('{"trainer_seq": 1}\\n')
time.sleep(600)
"""


class Broken:
    """A way to the service with a mistake of its own."""

    beats = 0

    def claim(self, nonce: str) -> NodePlan:
        raise NotImplementedError

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        self.beats += 1
        raise KeyError("a word that nobody expected")

    def report_end(self, end: EndReport) -> None:
        raise NotImplementedError


class Ways:
    def for_claim(self) -> Broken:
        return Broken()

    def for_attempt(self, environ: object) -> Broken:
        return Broken()


@pytest.fixture
def head(tmp_path: Path) -> Head:
    settings = NodeSettings.from_environment(
        {
            "HILLCLIMB_BLOBS_URL": str(tmp_path / "blobs"),
            "HILLCLIMB_RUN_ID": "run_1",
            "HILLCLIMB_ATTEMPT": "1",
            "HILLCLIMB_ATTEMPT_ID": "att_1",
            "HILLCLIMB_NODE_HOME": str(tmp_path / "home"),
            "HILLCLIMB_NODE_STOP_S": "60",
        }
    )
    settings.own_dir.mkdir(parents=True)
    return Head(
        settings=settings,
        environ={},
        journal=NodeJournal(settings.own_dir, "n" * 32),
        transports=Ways(),
        attach_log=lambda _where, _mask: None,
        delete_secrets=lambda: None,
    )


def trained_by(head: Head) -> TrainerProcess:
    attempt_dir: AttemptDir = head.attempt_dir
    attempt_dir.path.mkdir(parents=True)
    mark = {ATTEMPT_VARIABLE: "att_1", HOME_VARIABLE: str(head.settings.own_dir)}
    started = start_detached(
        (sys.executable, "-c", TRAINER),
        cwd=attempt_dir.path,
        environment=dict(os.environ) | mark,
        log=attempt_dir.log,
    )
    deadline = time.monotonic() + 60.0
    while not attempt_dir.events.exists() or not attempt_dir.events.read_bytes():
        assert time.monotonic() < deadline, attempt_dir.log.read_text()
        time.sleep(0.02)
    head._trainer = started
    return started


def test_a_beat_that_fails_in_a_way_nobody_expected_leaves_the_trainer_alone(head: Head) -> None:
    trainer, service = trained_by(head), Broken()
    assert trainer.popen is not None
    try:
        head._service = service
        head._heartbeat(is_preparing=False)
        assert service.beats == 1
        assert trainer.running()
        assert not head.stopping
    finally:
        trainer.kill()
        trainer.popen.wait()


def test_a_node_that_fails_lets_the_trainer_leave_and_brings_home_what_it_wrote(
    head: Head, tmp_path: Path
) -> None:
    trainer = trained_by(head)
    assert trainer.popen is not None
    end = head._fail(RuntimeError("a mistake"))
    assert (end.reason, end.last_trainer_seq) == ("internal", 2)
    assert end.message == "the node failed: RuntimeError: a mistake"
    assert trainer.popen.returncode == 0, "it was asked, not killed"
    assert not psutil.pid_exists(trainer.record.pid)
    store = DiskStore(tmp_path / "blobs")
    (key,) = store.list("runs/run_1/attempt-1/events")
    seqs = [json.loads(line)["trainer_seq"] for line in store.get(key).splitlines()]
    assert seqs == [1, 2]
