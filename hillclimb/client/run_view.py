"""State of a run for display, folded from its events one by one; no I/O, no colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from hillclimb.protocol.payloads.results.evals import EarlyStopPayload
from hillclimb.protocol.payloads.runs import RunSummary

_ANSI = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_])")
"""Codes of colours and cursors, as the last lines of a trainer's log have them."""
TERMINAL = ("succeeded", "failed", "cancelled")
WARNING_TYPES = ("run.warning", "guard.tripped", "event.refused")
"""Events that say what somebody may have to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """Progress of a phase of the trainer's start."""

    seconds: float = 0.0
    """Of its parts that have ended."""
    since: datetime | None = None
    """When the part that goes on began (UTC); None where it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The state of a run after some of its events."""

    run_id: str
    name: str = ""
    status: str = "queued"
    since: datetime | None = None
    """Start of the status (UTC)."""
    startup: Mapping[str, StartProgress] = field(default_factory=dict)
    """Phases of the newest attempt's start, in the order in which they began."""
    begun: str = ""
    """The phase of the start that the last event began; empty after any other event."""
    phase: str = ""
    attempt: int = 0
    step: int = 0
    total_steps: int = 0
    eta_s: float | None = None
    rewards: tuple[float, ...] = ()
    """Mean graded reward of each training step so far."""
    loss: float | None = None
    """Of the latest step of a warm start (nats)."""
    envs: Mapping[str, float] = field(default_factory=dict)
    """Latest training pass@1 per environment, in [0, 1]."""
    evals: Mapping[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)
    """(step, decoding) -> environment -> pass@1; `all` is the whole set."""
    evals_at_n: Mapping[tuple[int, str], tuple[int, Mapping[str, float]]] = field(
        default_factory=dict
    )
    """The same at n, the rollouts per task: n with pass@n per environment; none where it is 1."""
    early_stops: Mapping[tuple[int, str], EarlyStopPayload] = field(default_factory=dict)
    """Evaluations that ended before all of their tasks, as the keys of `evals`."""
    findings: str = ""
    """Findings of a probe or a validation, in a line."""
    warnings: tuple[str, ...] = ()
    """Warnings of the run, oldest first."""
    end_reason: str | None = None
    message: str = ""

    @property
    def ended(self) -> bool:
        """True in a final status."""
        return self.status in TERMINAL


def plain(text: str) -> str:
    """Return a text without codes of colours and cursors."""
    return _ANSI.sub("", text)


def from_run(run: RunSummary) -> RunView:
    """Return the view of a run before its events are applied."""
    return RunView(
        run_id=run.id,
        name=run.name,
        status=run.status.value,
        since=run.status_since,
        attempt=run.attempt,
        total_steps=run.progress.total,
    )


def apply(view: RunView, kind: str, data: Mapping[str, Any], at: datetime | None = None) -> RunView:
    """Return the view after one event, of that time; unknown events change nothing."""
    if kind == "trainer.starting":
        return _starting(view, data, at)
    handler = _HANDLERS.get(kind)
    after = replace(handler(view, data) if handler else view, begun="")
    return replace(after, since=at) if kind == "run.status_changed" and at is not None else after


def _status(view: RunView, data: Mapping[str, Any]) -> RunView:
    reason = data.get("reason") or {}
    return replace(
        view,
        status=data["to"],
        end_reason=reason.get("code"),
        message=plain(reason.get("message", "")),
    )


def _attempt(view: RunView, data: Mapping[str, Any]) -> RunView:
    return replace(view, attempt=data["attempt"], startup={})


def _starting(view: RunView, data: Mapping[str, Any], at: datetime | None) -> RunView:
    name, took = str(data["phase"]), data.get("seconds")
    before = view.startup.get(name, StartProgress())
    if took is None:
        progress, begun = StartProgress(seconds=before.seconds, since=at), name
    else:
        progress, begun = StartProgress(seconds=before.seconds + float(took)), ""
    return replace(view, startup={**view.startup, name: progress}, begun=begun)


def _rewound(view: RunView, data: Mapping[str, Any]) -> RunView:
    """Drop the rewards of the steps after the checkpoint, which are repeated."""
    step = int(data["from_step"])
    return replace(view, step=step, rewards=view.rewards[:step])


def _started(view: RunView, data: Mapping[str, Any]) -> RunView:
    return replace(view, total_steps=data["total_steps"], step=data.get("step", view.step))


def _phase(view: RunView, data: Mapping[str, Any]) -> RunView:
    decoding = data.get("decoding")
    return replace(view, phase=f"{data['phase']} ({decoding})" if decoding else data["phase"])


def _step(view: RunView, data: Mapping[str, Any]) -> RunView:
    metrics = data.get("metrics") or {}
    reward = metrics.get("reward/avg_raw_reward")
    return replace(
        view,
        step=data["step"],
        eta_s=data.get("eta_s"),
        loss=metrics.get("sft/loss"),
        rewards=view.rewards if reward is None else (*view.rewards, float(reward)),
        envs={**view.envs, **_pass_rates(data)},
    )


def _eval(view: RunView, data: Mapping[str, Any]) -> RunView:
    key = (int(data["step"]), str(data["decoding"]))
    stops = dict(view.early_stops)
    if (stop := data.get("stopped_early")) is not None:
        stops[key] = EarlyStopPayload.model_validate(stop)
    at_n = dict(view.evals_at_n)
    if (n := _sampled(data)) > 1:
        at_n[key] = (n, _pass_rates(data, at_n=True))
    return replace(
        view,
        evals={**view.evals, key: _pass_rates(data)},
        evals_at_n=at_n,
        early_stops=stops,
    )


def _probe(view: RunView, data: Mapping[str, Any]) -> RunView:
    verdicts = ", ".join(f"{key} {env['verdict']}" for key, env in data["environments"].items())
    return replace(view, findings=f"probe: {verdicts}")


def _validation(view: RunView, data: Mapping[str, Any]) -> RunView:
    verdicts = data["summary"]["verdicts"].items()
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts)
    return replace(view, findings=f"validation: {counts}")


def warning_of(kind: str, data: Mapping[str, Any]) -> str:
    """Return the sentence of an event of one of `WARNING_TYPES`."""
    message = str(data["message"])
    if kind == "guard.tripped":
        return f"guard {message}"
    if kind == "event.refused":
        return f"an event was not stored ({data['refused_type']}, step {data['step']}): {message}"
    return message


def _warn(kind: str, view: RunView, data: Mapping[str, Any]) -> RunView:
    return replace(view, warnings=(*view.warnings, warning_of(kind, data)))


def _excluded(view: RunView, data: Mapping[str, Any]) -> RunView:
    excluded = f"{data['num_excluded']} tasks are excluded from {data['dataset']}"
    return replace(view, findings=f"{view.findings}; {data['problem'] or excluded}")


def _sampled(data: Mapping[str, Any]) -> int:
    """Return the rollouts per task of an evaluation; 1 where the service did not say pass@n."""
    return int(((data.get("all") or {}).get("pass_at_n") or {}).get("k", 1))


def _pass_rates(data: Mapping[str, Any], *, at_n: bool = False) -> dict[str, float]:
    groups = {**(data.get("envs") or {}), "all": data.get("all") or {}}
    rates = {
        key: (rate.get("pass_at_n") or {}).get("value") if at_n else rate.get("pass_at_1")
        for key, rate in groups.items()
    }
    return {key: float(rate) for key, rate in rates.items() if rate is not None}


_HANDLERS: Mapping[str, Callable[[RunView, Mapping[str, Any]], RunView]] = {
    "run.status_changed": _status,
    "attempt.scheduled": _attempt,
    "attempt.rewound": _rewound,
    "trainer.started": _started,
    "phase.started": _phase,
    "step.completed": _step,
    "eval.completed": _eval,
    "probe.completed": _probe,
    "validation.completed": _validation,
    "validation.excluded": _excluded,
    **{kind: partial(_warn, kind) for kind in WARNING_TYPES},
}
