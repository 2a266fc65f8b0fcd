"""Renders outbox messages from the run, its event and, at its end, the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from api.notices import messages
from api.notices.messages import AtN, Message, RateLine, RunFacts
from api.results.errors import NoSuchEval
from api.results.evals.report import build_report
from api.runs.end_reasons import REASONS
from api.runs.outbox import Claim
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.events import GuardTripped
from hillclimb.protocol.payloads.results.evals import EarlyStopPayload

BREAKDOWNS = {"difficulties": "difficulty", "modalities": "modality"}
"""Breakdowns of an evaluation's event, with their titles; one with a single group says nothing."""


def render(session: Session, claim: Claim, *, public_url: str) -> Message:
    """Return the body of a message, with the current figures of the database."""
    run = session.get_one(Run, claim.run_id)
    event = session.get_one(RunEvent, (claim.run_id, claim.payload["seq"]))
    facts = RunFacts(
        run_id=run.id,
        name=run.name,
        url=f"{public_url.rstrip('/')}/runs/{run.id}",
        total_steps=run.progress_total,
    )
    if claim.kind == "started":
        return _started(facts, run, event)
    if claim.kind == "eval":
        return _evaluated(facts, event)
    if claim.kind == "budget":
        return messages.budget(facts, sentence=str(event.data["message"]))
    if claim.kind == "warning":
        return messages.warning(facts, sentence=str(event.data["message"]))
    if claim.kind == "guard":
        return messages.guard(facts, GuardTripped.of(event.data))
    if claim.kind == "refused":
        return messages.warning(facts, sentence=_refused(event))
    if claim.kind == "machines":
        return _machines(facts, event)
    return _ended(session, facts, run)


def _refused(event: RunEvent) -> str:
    return (
        f"the checkpoint of step {event.data['step']} is refused ({event.data['reason']});"
        " the run resumes from an earlier one"
    )


def _started(facts: RunFacts, run: Run, event: RunEvent) -> Message:
    return messages.started(
        facts,
        model=str(run.spec["model"]["source"]),
        env_keys=run.spec["data"]["env_keys"],
        engine=str(event.data["engine"]),
    )


def _evaluated(facts: RunFacts, event: RunEvent) -> Message:
    data, stop = event.data, event.data.get("stopped_early")
    lines = [_line(key, rate) for key, rate in data["envs"].items()]
    return messages.evaluated(
        facts,
        step=data["step"],
        decoding=data["decoding"],
        lines=[*lines, _line("all", data["all"])],
        breakdowns={
            title: [_line(name, rate) for name, rate in data[key].items()]
            for key, title in BREAKDOWNS.items()
            if len(data.get(key, ())) > 1
        },
        early_stop=EarlyStopPayload.of(stop).sentence if stop else None,
    )


def _line(label: str, rate: Mapping[str, Any]) -> RateLine:
    at_n = rate.get("pass_at_n")
    return RateLine(
        label=label,
        n=rate["n"],
        rate=rate["pass_at_1"],
        low=rate["low"],
        high=rate["high"],
        at_n=at_n and AtN(n=at_n["k"], rate=at_n["value"], low=at_n["low"], high=at_n["high"]),
    )


def _machines(facts: RunFacts, event: RunEvent) -> Message:
    """Return the message from the event alone: the run may have changed since."""
    reason = event.data["reason"]
    return messages.machines(
        facts,
        status=str(event.data["to"]),
        reason=REASONS[ReasonCode(reason["code"])].wording,
        detail=str(reason.get("message") or ""),
    )


def _ended(session: Session, facts: RunFacts, run: Run) -> Message:
    return messages.ended(
        facts,
        status=run.status,
        reason=run.end_code or run.status,
        detail=run.end_message or "",
        tables=_tables(session, run.id),
    )


def _tables(session: Session, run_id: str) -> dict[str, list[RateLine]]:
    try:
        report = build_report(session, run_id)
    except NoSuchEval:
        return {}
    if report["before_step"] == report["after_step"]:
        return {}
    return {
        name: [
            *(_change(key, envs[name]) for key, envs in report["environments"].items()),
            _change("all", report[name]),
        ]
        for name in report["decodings"]
    }


def _change(label: str, facts: Mapping[str, Any]) -> RateLine:
    low, high = facts["after_interval"]
    at_n = facts["pass_at_n"]
    return RateLine(
        label=label,
        n=facts["n"],
        rate=facts["after"],
        low=low,
        high=high,
        before=facts["before"],
        verdict=facts["verdict"].upper(),
        at_n=at_n and _change_at_n(at_n),
    )


def _change_at_n(facts: Mapping[str, Any]) -> AtN:
    low, high = facts["after_interval"]
    return AtN(n=facts["k"], rate=facts["after"], low=low, high=high, before=facts["before"])
