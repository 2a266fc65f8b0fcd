"""Renders outbox messages from the run, its event and, at its end, the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.notices import messages
from api.notices.messages import AtN, RateLine, RunFacts
from api.notices.slack.blocks import Block, Message, button, with_confirmation
from api.notices.slack.facts import (
    checkpoint_line,
    configuration,
    cost_line,
    machines_line,
    wandb_line,
)
from api.notices.slack.live import ACKNOWLEDGE, APPROVE, run_url
from api.results.errors import NoSuchEval
from api.results.evals.conclusion import conclusion_of_run, result_of_run
from api.results.evals.report import build_report
from api.runs.end_reasons import REASONS
from api.runs.outbox import Claim
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.events import GuardTripped
from hillclimb.protocol.payloads.results.evals import EarlyStopPayload

EXTENSION_SHARE = 0.25
"""Part of the spec's budget by which one click extends it."""
BREAKDOWNS = {"difficulties": "difficulty", "modalities": "modality"}
"""Breakdowns of an evaluation's event, with their titles; one with a single group says nothing."""


def is_opening(claim: Claim) -> bool:
    """Return True for the message that only opens the thread, with the run's live message."""
    return claim.kind == "opened"


def render(
    session: Session, claim: Claim, *, public_url: str, now: datetime, log_tail: str = ""
) -> Message:
    """Return the body of a message, with the current figures of the database.

    `log_tail` are the last lines of a failed run's log.
    """
    run = session.get_one(Run, claim.run_id)
    event = session.get_one(RunEvent, (claim.run_id, claim.payload["seq"]))
    facts = RunFacts(
        run_id=run.id,
        name=run.name,
        url=run_url(public_url, run.id),
        total_steps=run.progress_total,
    )
    if claim.kind == "ended":
        return _ended(session, facts, run, now=now, log_tail=log_tail)
    return RENDERERS[claim.kind](session, facts, run, event)


def _refused(_: Session, facts: RunFacts, __: Run, event: RunEvent) -> Message:
    sentence = (
        f"the checkpoint of step {event.data['step']} is refused ({event.data['reason']});"
        " the run resumes from an earlier one"
    )
    return messages.warning(facts, sentence=sentence)


def _warned(_: Session, facts: RunFacts, __: Run, event: RunEvent) -> Message:
    return messages.warning(facts, sentence=str(event.data["message"]))


def _budget(_: Session, facts: RunFacts, run: Run, event: RunEvent) -> Message:
    approval = approve_button(run, event.seq) if event.data.get("owner") == "run" else None
    return messages.budget(facts, sentence=str(event.data["message"]), approval=approval)


def _provisioning(_: Session, facts: RunFacts, run: Run, event: RunEvent) -> Message:
    skypilot = run.spec["backend"].get("skypilot") or {}
    candidates = skypilot.get("candidates") or []
    names = [f"{each['accelerators']} at {each['infra']}" for each in candidates[:3]]
    attempt = event.attempt or max(1, run.attempt)
    return messages.provisioning(facts, machines=", ".join(names), attempt=attempt)


def _started(_: Session, facts: RunFacts, run: Run, event: RunEvent) -> Message:
    return messages.started(
        facts,
        configuration=configuration(run),
        engine=str(event.data["engine"]),
        resumed_from=event.data.get("resumed_from_step"),
    )


def _evaluated(session: Session, facts: RunFacts, _: Run, event: RunEvent) -> Message:
    data, stop = event.data, event.data.get("stopped_early")
    first = _first_eval(session, event)
    before = {} if first is None else {**first["envs"], "all": first["all"]}
    rates = {**data["envs"], "all": data["all"]}
    return messages.evaluated(
        facts,
        step=data["step"],
        decoding=data["decoding"],
        lines=[rate_line(key, rate, before.get(key)) for key, rate in rates.items()],
        breakdowns={
            title: [rate_line(name, rate) for name, rate in data[key].items()]
            for key, title in BREAKDOWNS.items()
            if len(data.get(key, ())) > 1
        },
        early_stop=EarlyStopPayload.of(stop).sentence if stop else None,
    )


def _first_eval(session: Session, event: RunEvent) -> Mapping[str, Any] | None:
    """Return the run's first evaluation under the same decoding; null if this event is it."""
    query = select(RunEvent.data).where(
        RunEvent.run_id == event.run_id,
        RunEvent.type == "eval.completed",
        RunEvent.data["decoding"].astext == str(event.data["decoding"]),
        RunEvent.seq < event.seq,
    )
    first = session.scalar(query.order_by(RunEvent.seq).limit(1))
    return first if first is not None and first["step"] < event.data["step"] else None


def rate_line(
    label: str, rate: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> RateLine:
    """Return a row; `before` is the same figure in the run's first evaluation."""
    at_n, before_n = rate.get("pass_at_n"), (before or {}).get("pass_at_n")
    value_before = before_n["value"] if before_n and at_n and before_n["k"] == at_n["k"] else None
    return RateLine(
        label=label,
        n=rate.get("num_tasks", rate["n"]),
        rate=rate["pass_at_1"],
        low=rate["low"],
        high=rate["high"],
        before=None if before is None else before["pass_at_1"],
        at_n=at_n
        and AtN(
            n=at_n["k"],
            rate=at_n["value"],
            low=at_n["low"],
            high=at_n["high"],
            before=value_before,
        ),
    )


def _guard(_: Session, facts: RunFacts, __: Run, event: RunEvent) -> Message:
    trip = GuardTripped.of(event.data)
    value = f"{facts.run_id}:{trip.guard}:{trip.number}"
    return messages.guard(facts, trip, acknowledgement=button("Acknowledge", ACKNOWLEDGE, value))


def approve_button(run: Run, seq: int) -> Block | None:
    """Return the button that extends the run's own budget; null for a run without one."""
    budget = run.spec.get("budget") or {}
    usd, hours = ((budget.get(name) or 0.0) * EXTENSION_SHARE for name in ("usd", "hours"))
    if not usd and not hours:
        return None
    parts = [f"${usd:.2f}"] if usd else []
    parts += [f"{hours:.2f} h"] if hours else []
    more = " and ".join(parts)
    approve = button(f"Approve {more} more", APPROVE, f"{run.id}:{usd:.4f}:{hours:.4f}:{seq}")
    question = f"Extend the budget of *{run.id}* by {more}? A paused run resumes when you say so."
    return with_confirmation(approve, "Extend the budget", question, "Extend")


def _machines(_: Session, facts: RunFacts, run: Run, event: RunEvent) -> Message:
    """Return the message from the event alone: the run may have changed since."""
    reason = event.data["reason"]
    is_spent = reason["code"] == ReasonCode.BUDGET_EXHAUSTED.value
    return messages.machines(
        facts,
        status=str(event.data["to"]),
        reason=REASONS[ReasonCode(reason["code"])].wording,
        detail=str(reason.get("message") or ""),
        approval=approve_button(run, event.seq) if is_spent else None,
    )


RENDERERS: Mapping[str, Callable[[Session, RunFacts, Run, RunEvent], Message]] = {
    "budget": _budget,
    "eval": _evaluated,
    "guard": _guard,
    "machines": _machines,
    "provisioning": _provisioning,
    "refused": _refused,
    "started": _started,
    "warning": _warned,
}
"""By the kind of message; `ended` reads more than its event."""


def _ended(session: Session, facts: RunFacts, run: Run, *, now: datetime, log_tail: str) -> Message:
    wandb = wandb_line(run)
    conclusion = conclusion_of_run(session, run, result_of_run(session, run))
    return messages.ended(
        facts,
        status=run.status,
        reason=run.end_code or run.status,
        detail=run.end_message or "",
        tables=_tables(session, run.id),
        remains=messages.Remains(
            lines=(
                f"machines: {machines_line(session, run)}",
                f"checkpoint: {checkpoint_line(session, run)}",
                f"cost: {cost_line(session, run, now=now)}",
                *([wandb] if wandb else []),
            ),
            log_tail=log_tail,
            conclusion="" if conclusion is None else conclusion.sentence,
            has_learned=conclusion is None or conclusion.has_learned,
        ),
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
            *(change_line(key, envs[name]) for key, envs in report["environments"].items()),
            change_line("all", report[name]),
        ]
        for name in report["decodings"]
    }


def change_line(label: str, facts: Mapping[str, Any]) -> RateLine:
    """Return a row of a comparison, from the facts of a report."""
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
