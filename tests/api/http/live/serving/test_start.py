"""The start of one process: its imports run without the garbage collector."""

from __future__ import annotations

import gc

from fastapi import FastAPI

from api.http.live.serving.processes import ApiConfig

collector_was_on: list[bool] = []


def make_application() -> FastAPI:
    collector_was_on.append(gc.isenabled())
    return FastAPI()


def test_the_application_is_made_while_the_collector_is_paused() -> None:
    """Its imports leave no garbage, and scanning what they make took a quarter of the start."""
    ApiConfig(f"{__name__}:make_application", factory=True, ws="none").load()
    assert collector_was_on == [False]
    assert gc.isenabled()
