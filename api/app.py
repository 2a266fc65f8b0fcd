"""The FastAPI application: services, routes, error handlers (`python -m api.http.live.serving`)."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import anyio.to_thread
from fastapi import Depends, FastAPI
from starlette.routing import Route

from api.clusters.cloud_worker import require_cloud_worker
from api.http import handlers
from api.http.document import openapi
from api.http.live.lifespan import run_hub
from api.http.live.memory import return_memory
from api.http.live.serving.shared import open_table
from api.http.measurement.access_log import hide_codes
from api.http.measurement.readiness import Readiness
from api.http.measurement.requests import RequestTimer
from api.http.measurement.spans import RequestSpan
from api.http.middleware import RequestEdge
from api.http.requests.gate import Gate, gated
from api.http.requests.limits.entrance import Entrance
from api.http.requests.limits.rates import Rates
from api.http.requests.limits.wrong_keys import WrongKeys
from api.http.requests.query import refuse_unknown_query
from api.http.requests.services import open_services
from api.http.routes import health, schemas
from api.http.routes.access import audit, keys, members, projects
from api.http.routes.agents import agent_keys, attempts, ingest, runners
from api.http.routes.clusters import acceptance, clouds, clusters, presets
from api.http.routes.datasets import datasets, exclusions
from api.http.routes.projects import defaults, secrets, webhooks
from api.http.routes.results import (
    capsules,
    compare,
    compute,
    evals,
    metrics,
    patterns,
    rescorings,
    signal,
    tables,
    timeline,
)
from api.http.routes.results.preflight import probes, prompts, validations
from api.http.routes.results.rollouts import tokens, trajectories
from api.http.routes.runs import checkpoints, events, guards, logs, runs
from api.http.routes.slack import links as slack_links
from api.http.routes.slack import messages as slack_messages
from api.http.routes.slack import requests as slack_requests
from api.http.routes.studies import (
    campaigns,
    experiments,
    exports,
    imports,
    issues,
    notes,
)
from api.http.routes.web import (
    dashboard,
    dataset_pages,
    documentation,
    machine_pages,
    oidc,
    prometheus,
    run_actions,
    run_list,
    run_pages,
    sessions,
    studies,
)
from api.http.routes.web.forms import admin, submit
from api.http.routes.web.forms import audit as audit_page
from api.http.routes.web.forms import keys as keys_page
from api.http.routes.web.forms import members as members_page
from api.http.routes.web.forms import project as project_page
from api.http.routes.web.forms import secrets as secrets_page
from api.http.slack.processing import run_inbox
from api.queue import TaskQueue
from api.runs.api_liveness import is_api_alive
from api.runs.journal import utc_now
from api.scheduling.outages.extensions import renew_runner_leases
from api.settings import Settings, load_settings
from api.tables.access.identity import RUNNER_SCOPES, USER_SCOPES, ensure_key
from api.tables.database import Database, check_pools
from hillclimb.process import tracing
from hillclimb.process.code_revision import code_revision

ROUTERS = (
    health.router,
    schemas.router,
    presets.router,
    runs.router,
    notes.router,
    ingest.router,
    runners.router,
    attempts.router,
    agent_keys.router,
    events.router,
    guards.router,
    metrics.router,
    evals.router,
    compare.router,
    tables.router,
    compute.router,
    campaigns.router,
    issues.router,
    imports.router,
    exports.router,
    experiments.router,
    patterns.router,
    probes.router,
    prompts.router,
    rescorings.router,
    signal.router,
    validations.router,
    timeline.router,
    trajectories.router,
    tokens.router,
    checkpoints.router,
    capsules.router,
    logs.router,
    clusters.router,
    clouds.router,
    acceptance.router,
    exclusions.router,
    datasets.router,
    keys.router,
    members.router,
    projects.router,
    audit.router,
    oidc.router,
    secrets.router,
    defaults.router,
    webhooks.router,
    documentation.router,
    prometheus.router,
    slack_requests.router,
    slack_links.router,
    slack_messages.router,
    sessions.router,
    dashboard.router,
    dataset_pages.router,
    machine_pages.router,
    run_actions.router,
    run_list.router,
    run_pages.router,
    studies.router,
    submit.router,
    admin.router,
    members_page.router,
    keys_page.router,
    secrets_page.router,
    project_page.router,
    audit_page.router,
)


def create_app(
    settings: Settings | None = None,
    task_queue: TaskQueue | None = None,
    database: Database | None = None,
) -> FastAPI:
    """Return the application; the default settings come from the environment.

    While it serves, it opens the parts that were not passed in; the caller closes the others.
    `database` is a pool of `settings.database_url`.
    """
    settings = settings or load_settings()
    hide_codes()
    app = FastAPI(
        title="Hillclimb",
        version=_version(),
        description="Training as a service for reinforcement learning of tool-use agents.",
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(refuse_unknown_query)],
    )
    app.state.settings, app.state.task_queue, app.state.database = settings, task_queue, database
    own = [route for route in app.routes if isinstance(route, Route)]
    declared = [route for each in ROUTERS for route in each.routes if isinstance(route, Route)]
    app.add_middleware(Gate, routes=gated([*own, *declared]))
    app.add_middleware(RequestEdge, max_upload_bytes=settings.dataset_max_mb * 1_000_000)
    app.add_middleware(RequestTimer)
    app.add_middleware(RequestSpan)
    handlers.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    tracing.start_tracing("hillclimb-api")
    try:
        parts = (app.state.task_queue, app.state.database)
        with open_services(settings, os.environ, *parts) as services:
            await anyio.to_thread.run_sync(_bootstrap, settings, services.database)
            app.state.services = services
            app.state.readiness = Readiness(
                database=services.database, task_queue=services.task_queue
            )
            table = open_table(os.environ)
            app.state.entrance = Entrance(
                database=services.database,
                wrong_keys=WrongKeys(per_minute=settings.wrong_keys_per_minute, table=table),
            )
            app.state.rates = Rates(per_minute=settings.requests_per_minute, table=table)
            async with (
                run_hub(services.database, settings.database_url) as hub,
                return_memory(),
            ):
                app.state.hub = hub
                # Without a signing secret no request comes in here: Socket Mode's process acts.
                takes_requests = settings.slack_signing_secret is not None
                _freeze_imports()
                async with run_inbox(services) if takes_requests else nullcontext():
                    yield
    finally:
        tracing.stop_tracing()


@cache
def _freeze_imports() -> None:
    """Keep what the imports made out of every later garbage collection, once in the process.

    The first page after a start else waits for a full one over all modules: 0.3 s of CPU.
    """
    gc.freeze()


def _bootstrap(settings: Settings, database: Database) -> None:
    """Register the environment's API keys; renew leases that lapsed while no API process ran.

    Reads the code's revision now, which submissions store: the files may change later.
    """
    code_revision()
    with database.transaction() as session:
        check_pools(session, processes=settings.api_processes, pool=settings.db_pool)
        require_cloud_worker(session, clouds=settings.clouds, abandon=settings.abandons_clusters)
        # Not for one of several processes that starts again: another one received heartbeats.
        if not is_api_alive(session):
            renew_runner_leases(session, now=utc_now())
        if settings.bootstrap_key is not None:
            key = settings.bootstrap_key.get_secret_value()
            ensure_key(session, key, name="bootstrap", scopes=USER_SCOPES)
        if settings.runner_token is not None:
            key = settings.runner_token.get_secret_value()
            ensure_key(session, key, name="runner", scopes=RUNNER_SCOPES)


def _version() -> str:
    try:
        return version("hillclimb")
    except PackageNotFoundError:
        return "0"
