"""Commands that act: plan, run, fork, pause, resume, cancel, watch, link."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import exists, or_, select
from sqlalchemy.dialects.postgresql import insert

from api.admission.admission import Admitted
from api.admission.lineage.fork import ForkRequest
from api.http.payloads.runs import describe_plan
from api.http.requests.bodies import parse_body, parse_spec
from api.http.requests.stopping import stop_run
from api.http.slack.arguments import (
    closest,
    excerpt,
    find_run,
    only_run,
    split_changes,
)
from api.http.slack.call import InputRejected, PersonRequest
from api.http.slack.reply import SlackReply, of_blocks, sentence
from api.notices.slack import inbox
from api.notices.slack.blocks import Block, actions, button, context, escape, fields, section
from api.notices.slack.facts import configuration_of
from api.notices.slack.links import redeem_link_code
from api.notices.slack.live import run_url
from api.scheduling import control
from api.tables import SlackThread
from api.tables.access.identity import Principal
from hillclimb.hardware.presets.presets import preset, presets
from hillclimb.protocol.payloads.runs import PlanPayload
from hillclimb.spec.rules.dotted_keys import set_key

CHANNEL = "notify.slack.channel"
CONFIRM, DISCARD = "plan.confirm", "plan.discard"
MAX_WARNINGS = 8
MAX_WATCHING = 10
"""Channels that may watch one run."""


def link(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Link the Slack user to the API key of a one-time code."""
    if len(words) != 1:
        raise InputRejected("Send `/hillclimb link CODE` with the code of `hillclimb slack link`.")
    with request.services.database.transaction() as session:
        principal = redeem_link_code(session, words[0], request.user, now=request.now)
    return sentence(
        f"Linked: you act as the key `{escape(principal.key_name)}` of project"
        f" `{escape(principal.project_id)}`. `/hillclimb help` lists what you can do."
    )


def plan(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show what a run of a preset with changes would be, and what it would cost."""
    body = _spec_of(request, words)
    payload = _plan(request, body)
    return of_blocks(f"Plan of {payload.spec['name']}", _plan_blocks(payload))


def run(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show the plan, with a button that submits exactly this spec."""
    request.writer()
    body = _spec_of(request, words)
    payload = _plan(request, body)
    with request.services.database.transaction() as session:
        inbox.keep_spec(session, request.id, body)
    buttons = actions(
        button("Submit the run", CONFIRM, str(request.id), style="primary"),
        button("Discard", DISCARD, str(request.id)),
    )
    return of_blocks(
        f"Plan of {payload.spec['name']}: submit it?", (*_plan_blocks(payload), buttons)
    )


def _plan(request: PersonRequest, body: Mapping[str, Any]) -> PlanPayload:
    spec = parse_spec(json.dumps(body).encode(), request.admission.accepted())
    return describe_plan(request.admission.plan(spec, request.reader()), now=request.now)


def _spec_of(request: PersonRequest, words: Sequence[str]) -> dict[str, Any]:
    """Return the spec of a preset, or of a run, with changes and with this channel to notify."""
    caller = request.reader()
    names, changes = split_changes(words)
    if not names:
        raise InputRejected(
            "Name one preset, or a run to copy, then changes: `/hillclimb run PRESET"
            f" optimizer.lr=1e-5`. Presets: {', '.join(presets())}."
        )
    _refuse_more(names)
    body = _source(request, caller, names[0])
    set_key(body, CHANNEL, request.channel)
    for key, value in changes.items():
        try:
            set_key(body, key, value)
        except ValueError as error:
            raise InputRejected(f"{excerpt(key)}: {error}.") from error
    return body


def _refuse_more(names: Sequence[str]) -> None:
    """Refuse a second plain word: a change without its value, or a name without its quotes."""
    if len(names) > 1:
        raise InputRejected(
            f"{excerpt(names[1])} is no change: write KEY=VALUE, such as optimizer.lr=1e-5. A name"
            f' with spaces is quoted: "{excerpt(" ".join(names))}".'
        )


def _source(request: PersonRequest, caller: Principal, name: str) -> dict[str, Any]:
    if name in presets():
        return preset(name).spec
    try:
        with request.services.database.transaction() as session:
            spec = dict(find_run(session, caller.project_id, name).spec)
    except InputRejected as error:
        before, at, step = name.rpartition("@")
        if at and before and step.isdecimal():
            raise InputRejected(
                f"A copy starts from the beginning: `/hillclimb fork {excerpt(name)}` starts from"
                " the checkpoint of a step."
            ) from error
        raise InputRejected(
            f"There is no preset {excerpt(name)}, and no run.{closest(name, presets())} Presets:"
            f" {', '.join(presets())}."
        ) from error
    # A copy starts from the beginning: `fork` is the command that keeps the descent.
    del spec["lineage"]
    return copy.deepcopy(spec)


def _plan_blocks(payload: PlanPayload) -> tuple[Block, ...]:
    spec = payload.spec
    facts = configuration_of(spec)
    blocks = [
        section(f"*Plan of {escape(spec['name'])}*, {spec['schedule']['total_steps']} steps"),
        fields(*((name, escape(value)) for name, value in facts), *_cost_fields(payload)),
    ]
    if payload.warnings:
        lines = [f"• {escape(each)}" for each in payload.warnings[:MAX_WARNINGS]]
        blocks.append(section("*Warnings*\n" + "\n".join(lines)))
    place = f"position {payload.queue.position} in the queue"
    blocks.append(
        context(place if payload.queue.reason is None else f"{place}: {payload.queue.reason}")
    )
    return tuple(blocks)


def _cost_fields(payload: PlanPayload) -> list[tuple[str, str]]:
    hardware = payload.hardware
    if hardware is None:
        return [("Cost", "no machines are rented")]
    names = [each.label for each in hardware.candidates if each.why_not is None]
    price, what = hardware.longest_usd, f"at most, for {hardware.max_hours:g} h"
    cost = "not known" if price is None else f"${price.low:.2f} to ${price.high:.2f}, {what}"
    return [("Machines", escape(", ".join(names[:4]))), ("Cost", cost)]


def confirm(request: PersonRequest, value: str) -> SlackReply:
    """Submit the spec that a plan showed; pressed twice, it is one run."""
    caller = request.writer()
    number = int(value) if value.isdecimal() and len(value) < 19 else 0
    with request.services.database.transaction() as session:
        body = inbox.find_spec(session, number, project_id=caller.project_id)
    if body is None:
        raise InputRejected("This plan is gone: send the command again.")
    text = json.dumps(body, sort_keys=True).encode()
    # The plan's own id: whoever confirms it, and however often, it is one run.
    key = request.key("/v1/runs", text, of=f"plan:{number}")
    admitted = request.admission.submit(parse_spec(text, request.admission.accepted()), caller, key)
    return _submitted(request, admitted, "submitted", replaces=True)


def discard(_: PersonRequest, __: str) -> SlackReply:
    """Leave a plan alone."""
    return sentence("Discarded: nothing was submitted.", replaces=True)


def fork(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Start a new run from a run's spec with changes, with `RUN@STEP` from its checkpoint."""
    names, changes = split_changes(words)
    if not names:
        raise InputRejected(
            "Name the run: `/hillclimb fork RUN[@STEP] KEY=VALUE…`; `name=NAME` names the new one."
        )
    _refuse_more(names)
    name, at, step = names[0].rpartition("@")
    has_step = bool(at) and step.isdecimal() and bool(name)
    return fork_run(
        request,
        name if has_step else names[0],
        changes,
        step=int(step[:10]) if has_step else None,
    )


def fork_run(
    request: PersonRequest, name: str, changes: Mapping[str, Any], *, step: int | None
) -> SlackReply:
    """Fork a run; `name` among the changes names the new one."""
    caller = request.writer()
    with request.services.database.transaction() as session:
        parent = find_run(session, caller.project_id, name)
    changed = {key: value for key, value in changes.items() if key != "name"}
    new_name = None if changes.get("name") is None else str(changes["name"])
    if (parent.spec.get("notify") or {}).get("slack") is None:
        changed = {CHANNEL: request.channel} | changed
    body = json.dumps({"changes": changed, "step": step, "name": new_name}).encode()
    key = request.key(f"/v1/runs/{parent.id}/fork", body)
    admitted = request.admission.fork(parent.id, parse_body(ForkRequest, body), caller, key)
    return _submitted(request, admitted, f"forked from {parent.name}")


def _submitted(
    request: PersonRequest, admitted: Admitted, how: str, *, replaces: bool = False
) -> SlackReply:
    request.services.task_queue.enqueue([admitted.run_id])
    url = run_url(request.services.settings.link_base, admitted.run_id)
    name = escape(str(admitted.response.response["name"]))
    return sentence(
        f"*{name}* {escape(how)}: <{url}|{admitted.run_id}>", in_channel=True, replaces=replaces
    )


def pause(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Pause a run; its trainer saves a checkpoint first."""
    return stop(request, _named(request, words, "pause"), control.pause)


def cancel(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Cancel a run; its trainer saves a checkpoint first."""
    return stop(request, _named(request, words, "cancel"), control.cancel)


def stop(request: PersonRequest, run_id: str, act: Callable[..., None]) -> SlackReply:
    """Cancel or pause a run, and say what it is now."""
    payload, due = stop_run(request.services, request.writer(), run_id, act)
    request.services.task_queue.enqueue(due)
    return sentence(
        f"*{escape(payload.name)}* is {payload.status.value} (<@{request.user.user_id}>).",
        in_channel=True,
    )


def resume(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Continue a paused run, or start a new one from the checkpoint of one that ended."""
    return resume_run(request, _named(request, words, "resume"))


def resume_run(request: PersonRequest, run_id: str, *, of: str | None = None) -> SlackReply:
    """Resume a run, once per `of` or else per request, and say how it goes on."""
    key = request.key(f"/v1/runs/{run_id}/resume", of=of)
    admitted = request.admission.resume(run_id, request.writer(), key)
    how = "resumed" if admitted.run_id == run_id else f"continues {run_id}"
    return _submitted(request, admitted, how)


def _named(request: PersonRequest, words: Sequence[str], verb: str) -> str:
    """Return the id of the run that must be named: nothing is stopped by default."""
    caller = request.writer()
    if not words:
        raise InputRejected(f"Name the run: `/hillclimb {verb} RUN`; `@last` is the newest.")
    with request.services.database.transaction() as session:
        name = only_run(words, f"`/hillclimb {verb} RUN`")
        return find_run(session, caller.project_id, name).id


def watch(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Keep a live message of a run in this channel, with its events as replies.

    It is posted for everybody in the channel, and ends with the person's key.
    """
    caller = request.writer()
    with request.services.database.transaction() as session:
        run = find_run(session, caller.project_id, only_run(words, "`/hillclimb watch RUN`"))
        is_here = or_(
            SlackThread.channel == request.channel, SlackThread.channel_id == request.channel
        )
        if session.scalar(select(exists().where(SlackThread.run_id == run.id, is_here))):
            return sentence(f"This channel watches *{escape(run.name)}* already.")
        query = select(SlackThread.channel).where(SlackThread.run_id == run.id)
        if len(session.scalars(query).all()) >= MAX_WATCHING:
            raise InputRejected(f"{MAX_WATCHING} channels watch {run.name} already: no more do.")
        row = {"run_id": run.id, "channel": request.channel, "watcher": caller.key_id}
        session.execute(insert(SlackThread).values(**row).on_conflict_do_nothing())
        name = run.name
    return sentence(f"This channel watches *{escape(name)}* from now on.", in_channel=True)


def read_form_changes(text: str) -> dict[str, Any]:
    """Return the changes of a form: one `key=value` per line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain, changes = split_changes(lines)
    if plain:
        raise InputRejected(f"{plain[0]} is no change: write KEY=VALUE, one per line.")
    try:
        ForkRequest(changes=changes)
    except ValidationError as error:
        raise InputRejected("A key is longer than 300 characters, or there are over 64.") from error
    return changes
