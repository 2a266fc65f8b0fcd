"""`/v1/experiments`: a hypothesis, the runs that test it, its verdict and its report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Path, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.orm import Session

from api.admission.campaigns.launch import Admit
from api.admission.experiments import store
from api.admission.experiments.errors import (
    ExperimentExists,
    ExperimentNotFound,
    ExperimentRejected,
)
from api.admission.experiments.figures import build_figures
from api.admission.experiments.report import changelog_page, experiment_page
from api.admission.experiments.request import (
    AddedRun,
    ExperimentEdit,
    ExperimentSpec,
    SweepSpec,
)
from api.admission.experiments.results import build_results
from api.admission.experiments.sweeps import launch_sweep
from api.http.document.openapi import json_body
from api.http.payloads.experiments import describe_experiment, summarise_experiments
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import RawBody, Reader, Services, ServicesDep, Writer
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables import Run
from api.tables.access.grants.charging import GrantExhausted
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal
from hillclimb.protocol.payloads.studies.experiments import (
    ExperimentFigures,
    ExperimentList,
    ExperimentPayload,
    ExperimentResults,
)
from hillclimb.spec.run import RunSpec

MARKDOWN = "text/markdown; charset=utf-8"
CHANGELOG_LIMIT = 20

router = APIRouter(
    prefix="/v1/experiments",
    tags=["experiments"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)
ExperimentKey = Annotated[str, Path(max_length=60, examples=["v0.2.4"])]
Decoding = Annotated[
    str | None,
    Query(max_length=64, description="Of the figures; null: that with the highest temperature."),
]
NO_EXPERIMENT = KINDS[ExperimentNotFound]
BODY = (MALFORMED, TOO_LARGE, KINDS[ExperimentRejected])


@router.post(
    "",
    operation_id="create_experiment",
    summary="Create an experiment",
    status_code=201,
    response_model=ExperimentPayload,
    responses={**documented(*BODY, KINDS[ExperimentExists], NO_EXPERIMENT, KINDS[RunNotFound])},
    openapi_extra=json_body("ExperimentSpec"),
)
def create_experiment(services: ServicesDep, caller: Writer, body: RawBody) -> Response:
    """Store a hypothesis with the metrics that decide it; runs are added or swept afterwards."""
    spec = parse_body(ExperimentSpec, body)
    with services.database.transaction() as session:
        experiment = store.create(session, spec, caller, now=utc_now())
        session.flush()
        payload = describe_experiment(session, experiment)
    headers = {"Location": f"/v1/experiments/{payload.key}"}
    return JSONResponse(payload.model_dump(mode="json"), 201, headers)


@router.get(
    "",
    operation_id="list_experiments",
    summary="List experiments, newest first",
    responses={**documented(NO_EXPERIMENT)},
)
def list_experiments(
    services: ServicesDep,
    caller: Reader,
    before: Annotated[
        str | None, Query(max_length=60, description="Key of the last one of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> ExperimentList:
    """Return one page of the project's experiments."""
    with services.database.transaction() as session:
        last = store.get_experiment(session, caller.project_id, before) if before else None
        rows = store.list_experiments(session, caller.project_id, before=last, limit=limit + 1)
        return ExperimentList(
            data=summarise_experiments(session, rows[:limit]), has_more=len(rows) > limit
        )


@router.get(
    "/changelog",
    operation_id="get_changelog",
    summary="Read the changelog of experiments",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/markdown": {}}}},
)
def get_changelog(
    services: ServicesDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=50, description="Experiments.")] = CHANGELOG_LIMIT,
) -> Response:
    """Return `changelog.md`: the newest experiments with verdicts and tables, made from data."""
    with services.database.transaction() as session:
        rows = store.list_experiments(session, caller.project_id, before=None, limit=limit + 1)
        parents = store.keys_of(session, rows)
        chosen = [(each, parents.get(each.parent_id or "")) for each in rows[:limit]]
        page = changelog_page(session, chosen, has_more=len(rows) > limit)
    return Response(page, media_type=MARKDOWN)


@router.get(
    "/{key}",
    operation_id="get_experiment",
    summary="Read an experiment",
    responses={**documented(NO_EXPERIMENT)},
)
def get_experiment(services: ServicesDep, caller: Reader, key: ExperimentKey) -> ExperimentPayload:
    """Return an experiment with what people wrote and the state of its runs."""
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key)
        return describe_experiment(session, experiment)


@router.patch(
    "/{key}",
    operation_id="edit_experiment",
    summary="Edit an experiment",
    response_model=ExperimentPayload,
    responses={**documented(*BODY, NO_EXPERIMENT)},
    openapi_extra=json_body("ExperimentEdit"),
)
def edit_experiment(
    services: ServicesDep, caller: Writer, key: ExperimentKey, body: RawBody
) -> ExperimentPayload:
    """Replace the parts that are sent; nothing that is sent becomes a figure of the results."""
    changes = parse_body(ExperimentEdit, body)
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key, locked=True)
        store.edit(session, experiment, changes, now=utc_now())
        session.flush()
        return describe_experiment(session, experiment)


@router.post(
    "/{key}/runs",
    operation_id="add_experiment_run",
    summary="Add a run to an experiment",
    response_model=ExperimentPayload,
    responses={**documented(*BODY, NO_EXPERIMENT, KINDS[RunNotFound])},
    openapi_extra=json_body("AddedRun"),
)
def add_experiment_run(
    services: ServicesDep, caller: Writer, key: ExperimentKey, body: RawBody
) -> ExperimentPayload:
    """Add a run of the project, as baseline or variant; repeating it changes nothing."""
    added = parse_body(AddedRun, body)
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key, locked=True)
        store.add_run(session, experiment, added)
        return describe_experiment(session, experiment)


@router.delete(
    "/{key}/runs/{run}",
    operation_id="remove_experiment_run",
    summary="Remove a run from an experiment",
    responses={**documented(NO_EXPERIMENT)},
)
def remove_experiment_run(
    services: ServicesDep,
    caller: Writer,
    key: ExperimentKey,
    run: Annotated[str, Path(max_length=60, description="Id of the run, or its number.")],
) -> ExperimentPayload:
    """Remove a run; it goes on, and its rows stay."""
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key, locked=True)
        store.remove_run(session, experiment, run)
        return describe_experiment(session, experiment)


@router.post(
    "/{key}/sweep",
    operation_id="sweep_experiment",
    summary="Launch the runs of a sweep",
    response_model=ExperimentPayload,
    responses={**documented(*BODY, NO_EXPERIMENT, KINDS[GrantExhausted])},
    openapi_extra=json_body("SweepSpec"),
)
def sweep_experiment(
    services: ServicesDep,
    caller: Writer,
    key: ExperimentKey,
    body: RawBody,
    background: BackgroundTasks,
) -> ExperimentPayload:
    """Launch a run for every combination of values and seeds, each once: a repetition adopts.

    A run is identified by its spec without the name, within the project.
    """
    sweep = parse_body(SweepSpec, body)
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key, locked=True)
        run_ids = launch_sweep(
            session,
            experiment,
            sweep,
            _admit(services, caller),
            operator=services.settings.run_defaults,
        )
        session.flush()
        payload = describe_experiment(session, experiment)
    background.add_task(services.task_queue.enqueue, run_ids)
    return payload


@router.get(
    "/{key}/results",
    operation_id="get_experiment_results",
    summary="Read the results of an experiment",
    responses={**documented(NO_EXPERIMENT)},
)
def get_experiment_results(
    services: ServicesDep, caller: Reader, key: ExperimentKey, decoding: Decoding = None
) -> ExperimentResults:
    """Return the arms with intervals and the spread of their seeds, and the verdict."""
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key)
        return ExperimentResults.of(build_results(session, experiment, decoding=decoding))


@router.get(
    "/{key}/figures",
    operation_id="get_experiment_figures",
    summary="Read the data of an experiment's figures",
    responses={**documented(NO_EXPERIMENT)},
)
def get_experiment_figures(
    services: ServicesDep, caller: Reader, key: ExperimentKey, decoding: Decoding = None
) -> ExperimentFigures:
    """Return learning curves with intervals, the signal by windows of steps, sizes of the data."""
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key)
        return ExperimentFigures.of(build_figures(session, experiment, decoding=decoding))


@router.get(
    "/{key}/report",
    operation_id="get_experiment_report",
    summary="Read the report of an experiment",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/markdown": {}}}, **documented(NO_EXPERIMENT)},
)
def get_experiment_report(services: ServicesDep, caller: Reader, key: ExperimentKey) -> Response:
    """Return `experiments.md` of one experiment, made from data."""
    with services.database.transaction() as session:
        experiment = store.get_experiment(session, caller.project_id, key)
        parent = store.keys_of(session, [experiment]).get(experiment.parent_id or "")
        page = experiment_page(session, experiment, parent=parent)
    return Response(page, media_type=MARKDOWN)


def _admit(services: Services, caller: Principal) -> Admit:
    admission, now = services.admission, utc_now()

    def admit(session: Session, spec: RunSpec) -> Run:
        return admission.submit_within(session, spec, caller, now=now)

    return admit
