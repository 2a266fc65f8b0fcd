"""Pages of one run beyond its first: rollouts, metrics, checkpoints, configuration, attempts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.http.dashboard.run.measures import Measure
from api.http.dashboard.run.metrics import metrics_contents
from api.http.dashboard.run.record import (
    attempts_contents,
    checkpoints_contents,
    config_contents,
)
from api.http.dashboard.run.rollouts import (
    pair_sentence,
    rollout_contents,
    rollouts_contents,
)
from api.http.dashboard.run.tokens import TokenChoice, part_contents, tokens_contents
from api.http.dashboard.studies.signal import signal_contents
from api.http.requests.context import Reader, Services, ServicesDep
from api.http.requests.reads import open_run
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.rollouts.tokens import read_tokens
from api.results.artifacts.trajectories import find_outcome, read_trajectory
from api.results.signal import SignalFilters, build_signal
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables import OutcomeRecord, Run
from api.tables.access.identity import Principal, Scope
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=300)]
Number = Annotated[str, Query(max_length=9, pattern=r"^[0-9]*$")]
Outcome = Literal["", "failed", "passed", "ungraded", "infra_error"]
Contents = dict[str, Any]


def show_run(
    request: Request,
    services: Services,
    caller: Principal | None,
    run_id: str,
    template: str,
    build: Callable[[Session, Run], Contents],
) -> Response:
    """Return a page about a run: `build` makes its contents; strangers sign in first."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    try:
        with open_run(services, caller, run_id) as (session, run):
            return show_page(template, **{"run": run, **build(session, run)})
    except RunNotFound as error:
        return show_page("problem", status=404, title="No such run", detail=str(error))


def address_of(request: Request) -> str:
    """Return the request's path with its query, to return to after signing in."""
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


async def chosen_filters(  # noqa: PLR0913 (one per field)
    env: Text = "",
    step: Number = "",
    split: Literal["", "train", "eval"] = "",
    decoding: Text = "",
    outcome: Outcome = "",
    pattern: Text = "",
    task_key: Text = "",
) -> Contents:
    """Return the filled-in fields of the form; it sends empty ones as empty strings."""
    fields = {
        "env": env,
        "step": int(step) if step else None,
        "split": split,
        "decoding": decoding,
        "outcome": outcome,
        "pattern": pattern,
        "task_key": task_key,
    }
    return {name: value for name, value in fields.items() if value not in (None, "")}


@router.get("/runs/{run_id}/rollouts")
def rollouts_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    chosen: Annotated[Contents, Depends(chosen_filters)],
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """Show groups of rollouts by step, environment and task."""
    return show_run(
        request,
        services,
        caller,
        run_id,
        "run/rollouts",
        lambda session, run: rollouts_contents(session, run, chosen, page),
    )


@router.get("/runs/{run_id}/rollouts/{rollout_id:path}")
def rollout_page(  # noqa: PLR0913 (one per part of the address)
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    rollout_id: str,
    beside: Text = "",
    beside_run: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show one rollout turn by turn, or two side by side."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    named = [(run_id, rollout_id)]
    if beside:
        named.append((beside_run or run_id, beside))
    try:
        rollouts = [_rollout(services, caller, *each) for each in named]
    except RunNotFound as error:
        return show_page("problem", status=404, title="No such run", detail=str(error))
    except ArtifactNotFound as error:
        return show_page("problem", status=404, title="No such rollout", detail=str(error))
    difference = pair_sentence(*rollouts) if beside else None
    return show_page(
        "run/rollout", run=rollouts[0]["run"], rollouts=rollouts, difference=difference
    )


async def token_choice(
    turn: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    start: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    measure: Measure = "gap",
) -> TokenChoice:
    """Return the turn, position and measure of a page of tokens."""
    return TokenChoice(measure=measure, turn=turn, start=start)


@router.get("/runs/{run_id}/tokens/{rollout_id:path}")
def tokens_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    rollout_id: str,
    choice: Annotated[TokenChoice, Depends(token_choice)],
) -> Response:
    """Show the tokens of one turn of a rollout, and where engine and learner disagree most."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    try:
        run, outcome = _outcome(services, caller, run_id, rollout_id)
        report = read_tokens(services.store, outcome, run.spec)
    except RunNotFound as error:
        return show_page("problem", status=404, title="No such run", detail=str(error))
    except ArtifactNotFound as error:
        return show_page("problem", status=404, title="No such rollout", detail=str(error))
    return show_page("run/tokens", **tokens_contents(run, outcome, report, choice))


@router.get("/dashboard/runs/{run_id}/tokens/{rollout_id:path}")
def tokens_part(
    services: ServicesDep,
    caller: Reader,
    run_id: str,
    rollout_id: str,
    choice: Annotated[TokenChoice, Depends(token_choice)],
) -> Response:
    """Return the tokens of one turn, as a part of another page."""
    run, outcome = _outcome(services, caller, run_id, rollout_id)
    report = read_tokens(services.store, outcome, run.spec)
    return show_page("run/tokens_part", **part_contents(run, outcome, report, choice))


@router.get("/runs/{run_id}/metrics")
def metrics_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    beside: Annotated[list[str] | None, Query(max_length=10)] = None,
) -> Response:
    """Show any of the stored series by step, wall clock or compute; of other runs in the same."""
    return show_run(
        request,
        services,
        caller,
        run_id,
        "run/metrics",
        lambda session, run: metrics_contents(
            session, run, [each for each in beside or () if each]
        ),
    )


@router.get("/runs/{run_id}/signal")
def signal_page(request: Request, services: ServicesDep, caller: Visitor, run_id: str) -> Response:
    """Show what training can learn from each environment, step by step."""
    return show_run(
        request,
        services,
        caller,
        run_id,
        "run/signal",
        lambda session, run: signal_contents(build_signal(session, run.id, SignalFilters())),
    )


@router.get("/runs/{run_id}/checkpoints")
def checkpoints_page(
    request: Request, services: ServicesDep, caller: Visitor, run_id: str
) -> Response:
    """Show the checkpoints with their qualification."""
    return show_run(request, services, caller, run_id, "run/checkpoints", checkpoints_contents)


@router.get("/runs/{run_id}/config")
def config_page(request: Request, services: ServicesDep, caller: Visitor, run_id: str) -> Response:
    """Show the resolved spec and its difference to the parent's."""
    return show_run(request, services, caller, run_id, "run/config", config_contents)


@router.get("/runs/{run_id}/attempts")
def attempts_page(
    request: Request, services: ServicesDep, caller: Visitor, run_id: str
) -> Response:
    """Show the attempts, where their time went, and the guards."""
    return show_run(
        request,
        services,
        caller,
        run_id,
        "run/attempts",
        lambda session, run: attempts_contents(session, run, now=utc_now()),
    )


def _outcome(
    services: Services, caller: Reader, run_id: str, rollout_id: str
) -> tuple[Run, OutcomeRecord]:
    with open_run(services, caller, run_id) as (session, run):
        return run, find_outcome(session, run.id, rollout_id)


def _rollout(services: Services, caller: Reader, run_id: str, rollout_id: str) -> Contents:
    _, outcome = _outcome(services, caller, run_id, rollout_id)
    # Outside the session: reading the store may use the network.
    trajectory: StoredTrajectory | None = None
    with suppress(ArtifactNotFound):
        trajectory = read_trajectory(services.store, outcome)
    with open_run(services, caller, run_id) as (session, run):
        return rollout_contents(session, run, outcome, trajectory)
