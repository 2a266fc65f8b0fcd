"""The server as one ASGI application."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.applications import Starlette

from trainer.envs.minifleet.server.admin import Admin
from trainer.envs.minifleet.server.desk import Desk
from trainer.envs.minifleet.server.instances import Instances
from trainer.envs.minifleet.server.orchestrator import Orchestrator
from trainer.envs.minifleet.server.problems import Problem, answer_problem
from trainer.envs.minifleet.server.records import Records
from trainer.envs.minifleet.server.runner import Runner
from trainer.envs.minifleet.server.settings import ServerSettings
from trainer.envs.minifleet.server.strikes import Striker
from trainer.envs.minifleet.server.taskbook import TaskBook
from trainer.envs.minifleet.server.toolcalls import ToolCalls


def create_app(settings: ServerSettings, clock: Callable[[], float] = time.time) -> Starlette:
    """Return a server with no instances; all its state is in memory.

    Args:
        settings: the account and its faults.
        clock: seconds since the epoch, for deadlines and windows of faults.
    """
    striker = Striker(clock)
    striker.replace(settings.faults)
    desk = Desk(
        settings=settings,
        instances=Instances(
            clock=clock, limit=settings.instance_limit, default_ttl_s=settings.default_ttl_s
        ),
        striker=striker,
        book=TaskBook(settings.tasks_per_env),
    )
    parts = (Orchestrator(desk), Records(desk), Admin(desk), ToolCalls(desk), Runner(desk))
    return Starlette(
        routes=[route for part in parts for route in part.routes()],
        exception_handlers={Problem: answer_problem},
    )
