"""What has to hold after every cell, of the run under attack and of what it left."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hillclimb.blobs.disk import DiskStore
from tests.conformance.service import ENDED
from tests.e2e.chaos.specs import STEPS
from tests.e2e.chaos.stage import MAY_BE_ANSWERED, Stage
from tests.e2e.stream import Follower

Measured: TypeAlias = Mapping[tuple[str, int, str], Mapping[str, float]]
"""Metrics by type of event, step and decoding."""
OF_THE_SERVICE = ("attempt.rewound",)
"""Events that ingest adds in the trainer's name."""
MEASURED_BY_CLOCKS = (
    "timing/",
    "trainer/tokens_per_second",
    "policy/tokens_per_second",
    "policy/peak_mem",
)
"""Beginnings of names, as in tests/trainer/jobs/train/test_bit_exact_resume.py."""
CLOCKED = ("trajectory_time", "call_latency")
"""Parts of names, likewise."""
WATCH_S = 0.5
FINAL_STATUSES = {f"run.{status}" for status in ENDED}


@dataclass(frozen=True, slots=True)
class Reference:
    """The same run, undisturbed."""

    measured: Measured
    policy: Mapping[str, str]
    """Digests of the files of the last policy."""

    @classmethod
    def of(cls, stage: Stage) -> Reference:
        return cls(measured_by(stage, 1), policy_of(stage))


@dataclass(slots=True)
class Watch:
    """Counts the live trainers of the run, all the time."""

    stage: Stage
    most: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    def _look(self) -> None:
        while not self._done.wait(WATCH_S):
            self.most = max(self.most, len(self.stage.live_trainers()))

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()


def check_run(stage: Stage, follower: Follower, *, status: str) -> None:
    """The run has ended with `status`; its events, figures and processes are as they should be."""
    run = stage.run()
    assert run["status"] == status, run["end_reason"]
    events = stage.service.events(stage.run_id)
    check_numbers(stage, events, follower)
    check_end(events, status)
    attempts = range(1, int(run["attempt"]) + 1)
    for each in run["attempts"]:
        check_attempt(stage, events, each["number"], was_given_up=each["end_code"] == "runner_lost")
    if status == "succeeded":
        steps = {step for a in attempts for kind, step, _ in measured_by(stage, a) if kind == STEP}
        assert steps == set(range(1, STEPS + 1))
    check_figures(stage, attempts)
    check_resumed(events)
    stage.until(lambda: stage.service.left(stage.run_id) == [], patience_s=30.0)


STEP = "step.completed"


def check_numbers(stage: Stage, events: list[dict[str, Any]], follower: Follower) -> None:
    """Without gaps, each once; the stream that was cut has them all, once, in order."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len({event["id"] for event in events}) == len(events)
    assert follower.seen == [(event["seq"], event["type"]) for event in events]
    odd = {code: n for code, n in stage.answers.items() if code not in MAY_BE_ANSWERED}
    assert odd == {}, "the API answered with something else than the run, or 503"


def check_end(events: list[dict[str, Any]], status: str) -> None:
    """One terminal status, and no status after it."""
    changes = [e["data"]["to"] for e in events if e["type"] == "run.status_changed"]
    assert [each for each in changes if each in ENDED] == [status]
    assert changes[-1] == status


def check_attempt(
    stage: Stage, events: list[dict[str, Any]], attempt: int, *, was_given_up: bool
) -> None:
    """The API has what the attempt's trainer wrote, in its order: all of it, once.

    Where the service gave the attempt up while its trainer stood still, what that wrote when it
    woke is refused: the next attempt owns the run.
    """
    stored = [
        (event["type"], event["data"].get("step"))
        for event in events
        if event["attempt"] == attempt
        and event["actor"] == "trainer"
        and event["type"] not in OF_THE_SERVICE
    ]
    written = [(event["type"], event["step"]) for event in stage.written(attempt)]
    assert stored == (written[: len(stored)] if was_given_up else written)
    steps = Counter(event["step"] for event in stage.written(attempt) if event["type"] == STEP)
    assert set(steps.values()) <= {1}, f"attempt {attempt}"
    numbers = [event["trainer_seq"] for event in stage.written(attempt)]
    assert numbers == list(range(1, len(numbers) + 1))


def measured_by(stage: Stage, attempt: int) -> Measured:
    """Metrics of every step and evaluation, as the attempt's own file has them."""
    return {
        (event["type"], event["step"], event.get("decoding", "train")): event["metrics"]
        for event in stage.written(attempt)
        if event["type"] in (STEP, "eval.completed")
    }


def check_figures(stage: Stage, attempts: range) -> None:
    """Every point of the API is that of the newest attempt's file, and none is missing."""
    expected: dict[tuple[str, str, int], float] = {}
    for attempt in attempts:
        for (_, step, decoding), metrics in measured_by(stage, attempt).items():
            for name, value in metrics.items():
                if value is not None and math.isfinite(value):
                    expected[name, decoding, step] = value
    series = stage.service.get(stage.run_id, "/metrics")["data"]
    stored = {
        (each["name"], each["decoding"], point["step"]): point["value"]
        for each in series
        for point in each["points"]
    }
    assert stored == expected


def check_resumed(events: list[dict[str, Any]]) -> None:
    """Each attempt begins where a checkpoint of an earlier one is, or at the start."""
    saved: set[int] = set()
    for event in events:
        if event["type"] == "checkpoint.saved":
            saved.add(event["data"]["step"])
        elif event["type"] == "trainer.started":
            begins = event["data"]["resumed_from_step"]
            assert begins in saved if saved else begins is None


def check_equal(stage: Stage, reference: Reference, *, is_whole: bool) -> None:
    """Bit for bit the undisturbed run, in every attempt and in every repeated step.

    `is_whole`: it came to its end, so its last policy is the same, too.
    """
    for attempt in range(1, int(stage.run()["attempt"]) + 1):
        for key, metrics in measured_by(stage, attempt).items():
            assert unclocked(metrics) == unclocked(reference.measured[key]), (attempt, key)
    if is_whole:
        assert policy_of(stage) == reference.policy


def unclocked(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without those that a clock or the machine gives."""
    return {
        name: value
        for name, value in metrics.items()
        if not name.startswith(MEASURED_BY_CLOCKS) and not any(part in name for part in CLOCKED)
    }


def policy_of(stage: Stage) -> dict[str, str]:
    """Digests of the files of the policy of the last step."""
    store = DiskStore(stage.service.options.state_dir / "blobs")
    checkpoints = stage.service.get(stage.run_id, "/checkpoints")["data"]
    last = next(each for each in checkpoints if each["step"] == STEPS)
    manifest = json.loads(store.get(f"runs/{stage.run_id}/{last['path']}/manifest.json"))
    files = {each["path"]: each["sha256"] for each in manifest["files"]}
    return {path: digest for path, digest in files.items() if path.startswith("policy/")}
