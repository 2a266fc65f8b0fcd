"""The application for tests: its routes are built once a process, its parts for each test."""

from __future__ import annotations

import copy
from functools import cache

from fastapi import FastAPI
from starlette.datastructures import State

from api.app import create_app
from api.bell import Bell
from api.settings import Settings


@cache
def _template(dataset_max_mb: int) -> FastAPI:
    """Built from settings of which the routes and the middleware keep this one number."""
    return create_app(
        Settings.model_validate(
            {
                "database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none",
                "redis_url": "redis://127.0.0.1:1",
                "blobs_url": "/nowhere",
                "secret_key": "for no request",
                "dataset_max_mb": dataset_max_mb,
            }
        )
    )


def make_application(settings: Settings, bell: Bell) -> FastAPI:
    """Return what `create_app(settings, bell)` returns, with the routes that are there already.

    Everything that belongs to one application hangs on its `state`, which is made anew.
    """
    made = copy.copy(_template(settings.dataset_max_mb))
    made.state = State({"settings": settings, "bell": bell})
    return made
