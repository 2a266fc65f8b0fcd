"""The application: parts, routes, error mapping; run as `uvicorn api.app:create_app --factory`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

import anyio.to_thread
from fastapi import FastAPI

from api import handlers, openapi
from api.bell import Bell, CeleryBell
from api.clusters.attendance import refuse_unattended
from api.clusters.secrets import node_secrets
from api.database import Database
from api.identity import RUNNER_SCOPES, USER_SCOPES, ensure_key
from api.live.lifespan import run_hub
from api.middleware import RequestEdge
from api.routes import (
    attempts,
    checkpoints,
    clouds,
    clusters,
    dashboard,
    dataset_pages,
    datasets,
    evals,
    events,
    exclusions,
    health,
    ingest,
    logs,
    machine_pages,
    metrics,
    presets,
    probes,
    prompts,
    runners,
    runs,
    schemas,
    sessions,
    trajectories,
    validations,
)
from api.routes.context import Services
from api.routes.lanes import DatasetLanes
from api.runs.absence import forgive_holders
from api.runs.journal import utc_now
from api.settings import Settings, load_settings
from trainer.stores.locate import open_store
from trainer.stores.patience import Patience

STORE_PATIENCE = Patience(total_s=10.0)
"""A request waits for a store no longer than its caller does."""
ROUTERS = (
    health.router,
    schemas.router,
    presets.router,
    runs.router,
    ingest.router,
    runners.router,
    attempts.router,
    events.router,
    metrics.router,
    evals.router,
    probes.router,
    prompts.router,
    validations.router,
    trajectories.router,
    checkpoints.router,
    logs.router,
    clusters.router,
    clouds.router,
    exclusions.router,
    datasets.router,
    sessions.router,
    dashboard.router,
    dataset_pages.router,
    machine_pages.router,
)


def create_app(settings: Settings | None = None, bell: Bell | None = None) -> FastAPI:
    """Return the application; the environment configures what is not given."""
    settings = settings or load_settings()
    app = FastAPI(
        title="Hillclimb",
        version=_version(),
        description="Training as a service for reinforcement learning of tool-use agents.",
        lifespan=_lifespan,
        docs_url="/docs",
        redoc_url=None,
    )
    app.state.settings, app.state.bell = settings, bell
    app.add_middleware(RequestEdge, max_upload_bytes=settings.dataset_max_mb * 1_000_000)
    handlers.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    database = Database(settings.database_url)
    celery = CeleryBell(settings.redis_url)
    services = Services(
        settings=settings,
        database=database,
        bell=app.state.bell or celery,
        store=open_store(settings.blobs_url, STORE_PATIENCE),
        lanes=DatasetLanes(),
        node_secrets=node_secrets(settings.node_secrets, os.environ),
    )
    await anyio.to_thread.run_sync(_bootstrap, settings, database)
    app.state.services = services
    try:
        async with run_hub(database, settings.database_url) as hub:
            app.state.hub = hub
            yield
    finally:
        celery.close()
        database.close()


def _bootstrap(settings: Settings, database: Database) -> None:
    """Make the keys of the environment valid, and forgive runners that could not reach us."""
    with database.transaction() as session:
        refuse_unattended(session, clouds=settings.clouds, abandon=settings.abandons_clusters)
        forgive_holders(session, now=utc_now())
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
