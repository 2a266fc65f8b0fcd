"""Tools that plan, submit, follow, fork and stop runs."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from hillclimb.cli.agents.tools.tool import (
    AgentTool,
    Arguments,
    Json,
    RunId,
    Spec,
    Step,
    ToolContext,
    compact,
    facts,
)
from hillclimb.client.errors import ApiProblem
from hillclimb.client.run_view import WARNING_TYPES
from hillclimb.protocol.payloads.runs import RunSummary

ENDED = frozenset({"succeeded", "failed", "cancelled"})
AT_REST = ENDED | {"paused"}
"""Statuses in which nothing happens until somebody acts."""
POLL_S = 1.0
MAX_WAIT_S = 300
NUM_EVENTS = 100
EVENT_TYPES = ",".join([*WARNING_TYPES, "run.status_changed", "eval.completed", "probe.completed"])
"""Events that `watch` passes on."""
RUN_FACTS = ("id", "name", "status", "end_reason", "progress", "num_failures", "last_seq")
NO_GRANT = "agent_key_not_found"


class SpecArguments(Arguments):
    """A spec to plan."""

    spec: Spec


class SubmitArguments(SpecArguments):
    """A spec to submit."""

    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """A repetition with the same key and spec returns the same run and is not charged again."""


class RunArguments(Arguments):
    """A run."""

    run_id: RunId


class RunsArguments(Arguments):
    """Filters of the list of runs."""

    status: Literal["queued", "running", "paused", "succeeded", "failed", "cancelled"] | None = None
    name: Annotated[str, Field(max_length=120)] | None = None
    """Part of the name."""
    limit: Annotated[int, Field(ge=1, le=50)] = 20


class WatchArguments(RunArguments):
    """A run to wait for."""

    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 60.0
    """Longest wait in seconds; the answer comes earlier when the run has ended or paused."""
    after: Annotated[int, Field(ge=0)] = 0
    """Only events after this `seq`: pass `next_after` of the answer before."""


class ForkArguments(RunArguments):
    """Changes that make a new run from a run."""

    changes: Annotated[dict[str, JsonValue], Field(max_length=64)] = Field(default_factory=dict)
    """Values by dotted key: {"optimizer.lr": 1e-4}."""
    step: Step | None = None
    """Continue from the checkpoint of this step; null: start as the run did."""
    name: Annotated[str, Field(max_length=120)] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class ExtendArguments(RunArguments):
    """An extension of a run's budget."""

    usd: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    hours: Annotated[float, Field(ge=0, le=1e9)] = 0.0


class NoArguments(Arguments):
    """No arguments."""


class PresetArguments(Arguments):
    """A preset to read."""

    name: Annotated[str, Field(max_length=120)] | None = None
    """Null: list all of them by name."""


def plan(call: ToolContext, request: SpecArguments) -> Json:
    """Return what submitting would do."""
    planned = call.client.plan(request.spec)
    return facts(planned, "config_hash", "warnings", "dataset", "hardware", "queue")


def submit(call: ToolContext, request: SubmitArguments) -> Json:
    """Create a run."""
    run = call.client.submit(request.spec, idempotency_key=request.idempotency_key)
    return _described(run) | _grant(call)


def runs(call: ToolContext, request: RunsArguments) -> Json:
    """List runs."""
    page = call.client.runs(status=request.status, name=request.name, limit=request.limit)
    return {"runs": [_described(each) for each in page.data], "has_more": page.has_more}


def status(call: ToolContext, request: RunArguments) -> Json:
    """Return a run with its cost and its place in the queue."""
    run = call.client.run(request.run_id)
    return _described(run) | facts(run, "cost", "queue", "created_by", "created_at", "ended_at")


def watch(call: ToolContext, request: WatchArguments) -> Json:
    """Wait until the run has ended or paused, or the time is over; return what happened."""
    deadline = time.monotonic() + request.wait_s
    run = call.client.run(request.run_id)
    while run.status not in AT_REST and (left := deadline - time.monotonic()) > 0:
        if call.stopping.wait(min(POLL_S, left)):
            break
        run = call.client.run(request.run_id)
    page = call.client.events(
        request.run_id, after=request.after, limit=NUM_EVENTS, types=EVENT_TYPES
    )
    events = [{"seq": each.seq, "type": each.type} | _event_facts(each.data) for each in page.data]
    seen = page.data[-1].seq if page.data else request.after
    return {
        "run": _described(run),
        "has_ended": run.status in ENDED,
        "events": events,
        "next_after": seen,
        "has_more_events": page.has_more,
    }


def cancel(call: ToolContext, request: RunArguments) -> Json:
    """Cancel a run."""
    return _described(call.client.cancel(request.run_id))


def fork(call: ToolContext, request: ForkArguments) -> Json:
    """Fork a run."""
    run = call.client.fork(
        request.run_id,
        request.changes,
        step=request.step,
        name=request.name,
        idempotency_key=request.idempotency_key,
    )
    return _described(run) | facts(run, "config_diff") | _grant(call)


def extend(call: ToolContext, request: ExtendArguments) -> Json:
    """Extend the budget of a run."""
    budget = call.client.extend_budget(request.run_id, usd=request.usd, hours=request.hours)
    return facts(budget) | _grant(call)


def grant(call: ToolContext, request: NoArguments) -> Json:
    """Return what the key may still spend."""
    del request
    return _grant(call) or {"grant": None, "meaning": "this key has no grant: it is not limited"}


def presets(call: ToolContext, request: PresetArguments) -> Json:
    """List presets, or return one."""
    if request.name is None:
        page = call.client.presets()
        return {"presets": {each.name: each.about for each in page.data}}
    return facts(call.client.preset(request.name), "name", "about", "spec")


def _described(run: RunSummary) -> Json:
    return facts(run, *RUN_FACTS)


def _event_facts(data: Json) -> Json:
    """Return the facts of an event without its lists of rollouts."""
    small = {key: each for key, each in data.items() if key not in ("outcomes", "metrics", "envs")}
    values: Json = compact(small)
    return values


def _grant(call: ToolContext) -> Json:
    """Return the grant of the client's key, or nothing for a key without one."""
    try:
        own = call.client.agent_keys.own()
    except ApiProblem as problem:
        if problem.code == NO_GRANT:
            return {}
        raise
    return {"grant": facts(own.grant)}


TOOLS = (
    AgentTool(
        name="plan",
        summary="Check a spec without creating a run: warnings, hardware, costs, queue.",
        arguments=SpecArguments,
        answer=plan,
    ),
    AgentTool(
        name="submit",
        summary="Create a run from a spec; costs one run of the grant.",
        arguments=SubmitArguments,
        answer=submit,
        writes=True,
    ),
    AgentTool(
        name="runs", summary="List runs, newest first.", arguments=RunsArguments, answer=runs
    ),
    AgentTool(
        name="status",
        summary="Return a run: status, progress, cost, queue, why it ended.",
        arguments=RunArguments,
        answer=status,
    ),
    AgentTool(
        name="watch",
        summary=f"Wait up to {MAX_WAIT_S} s for a run to end; return its events. Repeat it.",
        arguments=WatchArguments,
        answer=watch,
    ),
    AgentTool(
        name="cancel",
        summary="Cancel a run; repeating it changes nothing.",
        arguments=RunArguments,
        answer=cancel,
        writes=True,
    ),
    AgentTool(
        name="fork",
        summary="Create a run from another run's spec with changes; costs one run of the grant.",
        arguments=ForkArguments,
        answer=fork,
        writes=True,
    ),
    AgentTool(
        name="extend",
        summary="Extend the budget of a run, within the grant.",
        arguments=ExtendArguments,
        answer=extend,
        writes=True,
    ),
    AgentTool(
        name="grant",
        summary="Return how many runs and how much budget your key may still spend.",
        arguments=NoArguments,
        answer=grant,
    ),
    AgentTool(
        name="presets",
        summary="List specs to start from, or return one by name.",
        arguments=PresetArguments,
        answer=presets,
    ),
)
