"""The server as one ASGI application."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.applications import Starlette

from hillclimb.minifleet.server.context import AppContext
from hillclimb.minifleet.server.faults.injection import RequestFaults
from hillclimb.minifleet.server.problems import FleetProblem, answer_problem
from hillclimb.minifleet.server.routes.admin import Admin
from hillclimb.minifleet.server.routes.instance import InstanceManager
from hillclimb.minifleet.server.routes.orchestrator import Orchestrator
from hillclimb.minifleet.server.routes.records import Records
from hillclimb.minifleet.server.routes.tools import ToolCalls
from hillclimb.minifleet.server.settings import MinifleetSettings
from hillclimb.minifleet.server.state.instances import InstanceTable
from hillclimb.minifleet.server.state.task_registry import TaskRegistry


def create_app(settings: MinifleetSettings, clock: Callable[[], float] = time.time) -> Starlette:
    """Return a server without instances; all state is in memory.

    Args:
        settings: the account and its faults.
        clock: seconds since the epoch, for deadlines and time windows of faults.
    """
    faults = RequestFaults(clock)
    faults.replace(settings.faults)
    context = AppContext(
        settings=settings,
        instances=InstanceTable(
            clock=clock, limit=settings.instance_limit, default_ttl_s=settings.default_ttl_s
        ),
        faults=faults,
        tasks=TaskRegistry(settings.tasks_per_env),
    )
    parts = (
        Orchestrator(context),
        Records(context),
        Admin(context),
        ToolCalls(context),
        InstanceManager(context),
    )
    return Starlette(
        routes=[route for part in parts for route in part.routes()],
        exception_handlers={FleetProblem: answer_problem},
    )
