"""Contents of run pages as plain values, for templates and for the page's script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.http.dashboard.machines import machines_contents
from api.http.dashboard.run.findings import EVENTS, results_contents
from api.http.live.reader import envelope
from api.results.evals.conclusion import conclusion_of_run, result_of_run
from api.runs.end_reasons import REASONS
from api.runs.queue_class import QueueClass, queue_class_of
from api.runs.status import WAITING, RunStatus
from api.scheduling.queue import queue_position
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import START_PHASES

MAX_STEPS = 1500
"""Training steps embedded in a page; of longer runs only every n-th."""
REWARD = "reward/avg_raw_reward"
TRANSIENT_TYPES = ("phase.started",)
"""Events about the present only: the page gets new ones from the stream."""


def run_contents(session: Session, run: Run, *, now: datetime) -> dict[str, Any]:
    """Return the contents of the run page: the run, its spec, and the script's initial state."""
    return {
        "run": run,
        "kind": run.spec.get("kind", "train"),
        "dataset": run.spec["data"].get("dataset"),
        "results": results_contents(session, run),
        "machines": machines_contents(session, run, now=now),
        "banner": run_banner(session, run, now=now),
        "state": {
            "run": _run_state(run),
            "report": EVENTS.get(run.spec.get("kind", "train")),
            "kind": run.spec.get("kind", "train"),
            "env_keys": list(run.spec["data"]["env_keys"]),
            "decodings": [item["name"] for item in run.spec["eval"]["decodings"]],
            "start_phases": dict(START_PHASES),
            "events": [_embedded(event) for event in _events(session, run)],
        },
    }


def run_banner(session: Session, run: Run, *, now: datetime) -> dict[str, str]:
    """Return a sentence on the run's status, with its tone (`good`, `warn`, `bad` or none)."""
    status = RunStatus(run.status)
    if status in WAITING:
        place = queue_position(session, run, now=now)
        text = f"Position {place.position} in the queue. {place.reason or 'It starts next.'}"
        return {"tone": "warn" if run.end_code else "", "text": f"{_why(run)} {text}".strip()}
    if run.end_code is not None:
        return _ended_banner(session, run, status)
    sentences = (
        _SENTENCES | _ON_CLUSTERS if queue_class_of(run) is QueueClass.CLUSTER else _SENTENCES
    )
    text = sentences.get(status, "")
    now_it = START_PHASES.get(run.progress_phase or "")
    if status is RunStatus.STARTING and now_it is not None:
        text += f" Now it {now_it}."
    return {"tone": "", "text": text}


def _ended_banner(session: Session, run: Run, status: RunStatus) -> dict[str, str]:
    """Return why the run ended and, of a training run, what it has shown: yellow for nothing."""
    conclusion = conclusion_of_run(session, run, result_of_run(session, run))
    tone = _TONES.get(status, "warn")
    if conclusion is None:
        return {"tone": tone, "text": _why(run)}
    sentence = conclusion.sentence.replace(" RUN", f" {run.id}")
    is_green = conclusion.has_learned or status is not RunStatus.SUCCEEDED
    return {
        "tone": tone if is_green else "warn",
        "text": f"{_why(run)} {sentence[0].upper()}{sentence[1:]}.",
    }


def _why(run: Run) -> str:
    """Return the wording of the run's end reason, with its message where that adds something."""
    if run.end_code is None:
        return ""
    wording = REASONS[ReasonCode(run.end_code)].wording
    message = (run.end_message or "").strip().rstrip(".")
    if run.end_code == ReasonCode.COMPLETED:
        kind = run.spec.get("kind", "train")
        wording = _COMPLETED.get(kind, wording)
        if message and kind not in _COMPLETED and run.origin is None:
            return f"{message[0].upper()}{message[1:]}."
    if run.origin is not None:
        return run.end_message or f"{wording} (Imported from {run.origin['source']}.)"
    adds = message and message not in f"{wording} {REASONS[ReasonCode(run.end_code)].wording}"
    return f"{wording} ({run.end_message})" if adds else wording


_COMPLETED = {
    "eval": "The evaluation is complete.",
    "probe": "The probe is complete.",
    "validate": "The validation is complete.",
    "preview": "The prompts are rendered.",
    "sft": "The warm start is complete.",
}
"""What a completed run of a kind without rollouts to learn from did."""
_TONES = {RunStatus.SUCCEEDED: "good", RunStatus.FAILED: "bad"}
_SENTENCES = {
    RunStatus.PROVISIONING: "Scheduled to a runner.",
    RunStatus.STARTING: "A runner is starting the trainer.",
    RunStatus.RUNNING: "The trainer is running.",
    RunStatus.PAUSING: "The trainer is saving a checkpoint before it pauses.",
    RunStatus.FINALIZING: "The trainer has finished; its last events are still arriving.",
    RunStatus.CANCELLING: "Cancelled: the trainer is saving a checkpoint and exiting.",
}
_ON_CLUSTERS = {
    RunStatus.PROVISIONING: "Its machines are being rented and set up.",
    RunStatus.STARTING: "The machines are up; the trainer is starting.",
}


def _run_state(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "attempt": run.attempt,
        "step": run.progress_step,
        "total": run.progress_total,
        "eta_s": run.progress_eta_s,
        "phase": run.progress_phase,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "last_seq": run.last_seq,
    }


def _events(session: Session, run: Run) -> Sequence[RunEvent]:
    """Return the run's events up to its `last_seq`, with a part of the steps of a long run."""
    every = max(1, run.progress_total // MAX_STEPS)
    step = RunEvent.data["step"].as_integer()
    query = (
        select(RunEvent)
        .where(
            RunEvent.run_id == run.id,
            RunEvent.seq <= run.last_seq,
            RunEvent.type.not_in(TRANSIENT_TYPES),
            (RunEvent.type != "step.completed") | (step % every == 0),
        )
        .order_by(RunEvent.seq)
    )
    return session.scalars(query).all()


def _embedded(event: RunEvent) -> dict[str, Any]:
    """Return the event as JSON, without data that the page does not draw."""
    data = event.data
    if event.type == "step.completed":
        fields = {key: data.get(key) for key in ("step", "eta_s", "all", "envs")}
        data = fields | {"metrics": {REWARD: data.get("metrics", {}).get(REWARD)}}
    return dict(envelope(event)) | {"data": data, "created_at": event.at.isoformat()}
