"""A trainer that trains nothing: a real process with the real files, signals and ingest.

Started as `PYTHON fake_trainer.py -m trainer run --spec … --run-dir … --attempt …`. The directory
`FAKE_TRAINER_GATES` steers it: while `hold-S` is there it waits before step S; `die-S` makes it
SIGKILL itself before step S (once: it removes the file); `mute` keeps it from pushing, `deaf` from
heeding SIGTERM, and while `slow` is there it does not leave. Each SIGTERM leaves `asked-N`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.protocol.rundir import MANIFEST, AttemptDir, ExitRecord, checkpoint_name, run_key
from hillclimb.spec.run import RunSpec

POLL_S = 0.02


class Ended(Exception):
    """The attempt is over for this reason."""


class FakeTrainer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.spec = RunSpec.model_validate_json(Path(arguments.spec).read_bytes())
        self.where = AttemptDir(Path(arguments.run_dir), arguments.attempt)
        self.run_id = self.where.run_dir.name
        self.gates = Path(os.environ["FAKE_TRAINER_GATES"])
        self.blobs = Path(os.environ["HILLCLIMB_BLOBS_URL"])
        self.first = 0
        if arguments.resume_from:
            folder = self.blobs / arguments.resume_from
            self.first = json.loads((folder / MANIFEST).read_text())["step"]
        self.seq = 0
        self.sent = 0
        self.unsent: list[str] = []
        self.step = self.first
        self.stopping = False
        self.num_asked = 0
        self.resumed = bool(arguments.resume_from)
        signal.signal(signal.SIGTERM, self._on_term)

    def run(self) -> None:
        try:
            self._train()
            self._end(ReasonCode.COMPLETED, "trained every step")
        except Ended as ended:
            self._end(ended.args[0], "left early")

    def _train(self) -> None:
        self._emit(
            events.TrainerStarted,
            total_steps=self.spec.schedule.total_steps,
            resumed_from_step=self.first if self.resumed else None,
            config_hash="0" * 64,
            prompt_version="fake",
            engine="fake",
            num_parameters=1,
            num_train_tasks=1,
            num_eval_tasks=1,
            versions={"python": "3.11"},
        )
        for step in range(self.first + 1, self.spec.schedule.total_steps + 1):
            self._gate(step)
            self.step = step
            row = self._row(step)
            self._emit(
                events.StepCompleted,
                metrics={"reward/mean": float(row.score or 0)},
                outcomes=(row,),
                eta_s=0.0,
            )
            if step % self.spec.checkpoints.interval == 0:
                self._checkpoint()
        self._checkpoint(final=True)

    def _gate(self, step: int) -> None:
        death = self.gates / f"die-{step}"
        if death.exists():
            death.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            if self.stopping and not (self.gates / "slow").exists():
                self._checkpoint()
                raise Ended(ReasonCode.RUNNER_STOPPED)
            if not self.stopping and not (self.gates / f"hold-{step}").exists():
                return
            self._push()
            time.sleep(POLL_S)

    def _row(self, step: int) -> OutcomeRow:
        return OutcomeRow(
            rollout_id=f"a{self.where.attempt}-s{step}-train-0",
            split="train",
            decoding="train",
            task_key="task-0",
            env_key=self.spec.data.env_keys[0],
            template="t",
            sample_index=0,
            status=OutcomeStatus.GRADED,
            score=1.0,
            stop_reason=StopReason.DONE,
            num_turns=1,
            num_tool_calls=0,
            num_tool_errors=0,
            num_repeated_calls=0,
            num_tokens=1,
            duration_s=0.1,
            trajectory="trajectories/none.jsonl.gz",
            trajectory_line=0,
        )

    def _checkpoint(self, *, final: bool = False) -> None:
        name = checkpoint_name(self.step, self.where.attempt)
        folder = self.blobs / run_key(self.run_id, name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_text(json.dumps({"step": self.step}))
        self._emit(
            events.CheckpointSaved, path=name, manifest_sha256="0" * 64, size_bytes=1, final=final
        )

    def _emit(self, kind: Callable[..., events.Event], **values: object) -> None:
        self.seq += 1
        event = kind(trainer_seq=self.seq, at=datetime.now(UTC), step=self.step, **values)
        line = event.model_dump_json()
        with self.where.events.open("a") as file:
            file.write(line + "\n")
        self.unsent.append(line)
        self._push()

    def _push(self) -> None:
        url = os.environ["HILLCLIMB_INGEST_URL"]
        if not url or not self.unsent or (self.gates / "mute").exists():
            return
        body = ('{"events":[' + ",".join(self.unsent) + "]}").encode()
        token = os.environ["HILLCLIMB_ATTEMPT_TOKEN"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            sys.stderr.write(f"ingest said {error.code}: {error.read()!r}\n")
            if error.code in (401, 403, 409, 410):
                raise Ended(ReasonCode.ATTEMPT_SUPERSEDED) from error
            return
        except OSError:
            return
        self.unsent.clear()

    def _end(self, reason: ReasonCode, message: str) -> None:
        if reason is not ReasonCode.ATTEMPT_SUPERSEDED:
            self._emit(events.TrainerEnded, reason=reason, message=message, training_seconds=1.0)
        record = ExitRecord(
            reason=reason,
            message=message,
            step=self.step,
            last_trainer_seq=self.seq,
            at=datetime.now(UTC),
        )
        self.where.exit.write_text(record.model_dump_json())

    def _on_term(self, _number: int, _frame: object) -> None:
        self.num_asked += 1
        (self.gates / f"asked-{self.num_asked}").touch()
        self.stopping = not (self.gates / "deaf").exists()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="module")
    parser.add_argument("command")
    for name in ("--spec", "--run-dir", "--resume-from"):
        parser.add_argument(name)
    parser.add_argument("--attempt", type=int)
    FakeTrainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
