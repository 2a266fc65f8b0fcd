"""Buttons and forms: what a click does, as the linked person."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from api.clusters import budgets
from api.http.slack import acting
from api.http.slack.arguments import find_run
from api.http.slack.call import InputRejected, PersonRequest
from api.http.slack.reading import compare_ends, compare_points
from api.http.slack.reply import SlackReply, sentence
from api.notices.errors import SlackRefused
from api.notices.slack.blocks import Block, escape
from api.notices.slack.live import (
    ACKNOWLEDGE,
    APPROVE,
    CANCEL,
    COMPARE,
    FORK,
    LOGS,
    OPEN,
    PAUSE,
    RESUME,
)
from api.results.comparison.comparison import Point
from api.runs import store
from api.runs.errors import RunNotFound
from api.scheduling import control
from api.scheduling.limits.guards.trips import acknowledge
from api.tables import Run
from api.tables.access import idempotency
from api.tables.access.grants.charging import charge_extension
from api.tables.access.idempotency import StoredResponse

FORK_FORM = "fork"
CHANGES, NAME, STEP = "changes", "name", "step"
"""Blocks of the fork's form."""
LINKS = (OPEN, LOGS)
"""Buttons that open a page: Slack reports the click, and nothing is left to do."""
ONCE = (PAUSE, RESUME, CANCEL, APPROVE, ACKNOWLEDGE, acting.CONFIRM, acting.DISCARD)
"""Buttons of which a second click of the same person on the same message does nothing."""

Payload = Mapping[str, Any]


def press(request: PersonRequest, payload: Payload) -> SlackReply | None:
    """Carry out a click; raises InputRejected and the errors of the domains."""
    action, value = str(payload["action_id"]), str(payload["value"])
    if action in LINKS:
        return None
    if action == FORK:
        return _open_fork(request, _run_id(value), payload)
    if action not in ACTIONS:
        raise InputRejected("This button is of another version: use `/hillclimb` instead.")
    return ACTIONS[action](request, value)


def _run_id(value: str) -> str:
    return value.partition(":")[0]


def _pause(request: PersonRequest, value: str) -> SlackReply:
    return acting.stop(request, _run_id(value), control.pause)


def _cancel(request: PersonRequest, value: str) -> SlackReply:
    return acting.stop(request, _run_id(value), control.cancel)


def _resume(request: PersonRequest, value: str) -> SlackReply:
    return acting.resume_run(request, _run_id(value), of=f"resume:{value}")


def _compare(request: PersonRequest, value: str) -> SlackReply:
    """Compare a forked run with its parent, and another one's end with its start."""
    caller = request.reader()
    with request.services.database.transaction() as session:
        run = store.get_run(session, caller.project_id, _run_id(value))
        forked_from = (run.spec.get("lineage") or {}).get("forked_from")
        if forked_from is None:
            return compare_ends(session, run)
        parent = store.get_run(session, caller.project_id, forked_from["run_id"])
        return compare_points(session, Point(run=parent), Point(run=run))


def _approve(request: PersonRequest, value: str) -> SlackReply:
    """Extend the run's budget by the amounts on the button: once, whoever presses it."""
    caller = request.writer()
    run_id, usd, hours = _amounts(value)
    key = request.key(f"/v1/runs/{run_id}/budget", of=f"approve:{value}")
    with request.services.database.transaction() as session:
        run = store.lock_run(session, run_id, project_id=caller.project_id)
        if idempotency.begin(session, key) is not None:
            return sentence("This extension was approved before.")
        budgets.extend(session, run, usd=usd, hours=hours, granted_by=caller.actor, now=request.now)
        charge_extension(session, caller, usd=usd, hours=hours)
        name, status = run.name, run.status
        idempotency.finish(session, key, StoredResponse(status=200, response={}))
    more = " and ".join([f"${usd:.2f}"] * bool(usd) + [f"{hours:.2f} h"] * bool(hours))
    hint = f" It is {status}: `/hillclimb resume {run_id}`." if status == "paused" else ""
    return sentence(
        f"<@{request.user.user_id}> extended the budget of *{escape(name)}* by {more}.{hint}",
        in_channel=True,
    )


def _amounts(value: str) -> tuple[str, float, float]:
    try:
        run_id, usd, hours, _ = value.split(":")
        amounts = (float(usd), float(hours))
    except ValueError as error:
        raise InputRejected("This button is of another version: use the CLI instead.") from error
    if not all(math.isfinite(each) and each >= 0.0 for each in amounts):
        raise InputRejected("This button names no amount.")
    return run_id, *amounts


def _acknowledge(request: PersonRequest, value: str) -> SlackReply:
    """Note that the linked person has seen why a guard tripped."""
    caller = request.writer()
    run_id, guard, number = (*value.split(":"), "", "")[:3]
    episode = int(number) if number.isdecimal() else None
    with request.services.database.transaction() as session:
        run = store.lock_run(session, run_id, project_id=caller.project_id)
        row = acknowledge(session, run, guard, number=episode, actor=caller.actor, now=request.now)
        who = row.acknowledged_by
    return sentence(f"Guard `{escape(guard)}` acknowledged by {escape(str(who))}.", in_channel=True)


ACTIONS: Mapping[str, Callable[[PersonRequest, str], SlackReply]] = {
    PAUSE: _pause,
    RESUME: _resume,
    CANCEL: _cancel,
    COMPARE: _compare,
    APPROVE: _approve,
    ACKNOWLEDGE: _acknowledge,
    acting.CONFIRM: acting.confirm,
    acting.DISCARD: acting.discard,
}


def _open_fork(request: PersonRequest, run_id: str, payload: Payload) -> SlackReply | None:
    caller = request.writer()
    with request.services.database.transaction() as session:
        run = store.get_run(session, caller.project_id, run_id)
        view = _fork_form(run, payload)
    try:
        request.services.slack.open_form(str(payload["trigger_id"]), view)
    except SlackRefused as error:
        raise InputRejected(
            f"The form did not open ({error}): press the button again, or use `/hillclimb fork"
            f" {run_id} KEY=VALUE`."
        ) from error
    return None


def _fork_form(run: Run, payload: Payload) -> dict[str, Any]:
    place = {"run": run.id, "channel": payload["channel"], "ts": payload["thread_ts"]}
    lr = run.spec["optimizer"]["lr"]
    return {
        "type": "modal",
        "callback_id": FORK_FORM,
        "private_metadata": json.dumps(place),
        "title": {"type": "plain_text", "text": "Fork a run"},
        "submit": {"type": "plain_text", "text": "Start the fork"},
        "close": {"type": "plain_text", "text": "Back"},
        "blocks": [
            _input(NAME, "Name of the new run", f"{run.name[:60]} fork"),
            _input(CHANGES, "Changes, one KEY=VALUE per line", f"optimizer.lr={lr:g}", lines=True),
            _input(STEP, "From the checkpoint of this step (empty: from the start)", "20"),
        ],
    }


def _input(block_id: str, label: str, hint: str, *, lines: bool = False) -> Block:
    return {
        "type": "input",
        "block_id": block_id,
        "optional": True,
        "label": {"type": "plain_text", "text": label},
        "element": {
            "type": "plain_text_input",
            "action_id": block_id,
            "multiline": lines,
            "max_length": 3000 if lines else 100,
            "placeholder": {"type": "plain_text", "text": hint[:150]},
        },
    }


def form_mistakes(values: Mapping[str, str]) -> dict[str, str]:
    """Return a sentence for each block of a fork's form that cannot be understood."""
    mistakes = {}
    step = values.get(STEP, "").strip()
    if step and not (step.isdecimal() and len(step) <= 9):
        mistakes[STEP] = "A step is a number, such as 20."
    try:
        acting.read_form_changes(values.get(CHANGES, ""))
    except InputRejected as error:
        mistakes[CHANGES] = str(error)[:150]
    return mistakes


def submit_form(request: PersonRequest, payload: Payload) -> SlackReply:
    """Fork the run of a form that was filled in."""
    caller = request.writer()
    values = payload["values"]
    with request.services.database.transaction() as session:
        try:
            run = find_run(session, caller.project_id, str(payload["run"]))
        except InputRejected as error:
            raise RunNotFound(str(payload["run"])) from error
    step = values.get(STEP, "").strip()
    changes = acting.read_form_changes(values.get(CHANGES, ""))
    name = values.get(NAME, "").strip()
    if name:
        changes["name"] = name
    return acting.fork_run(request, run.id, changes, step=int(step) if step else None)
