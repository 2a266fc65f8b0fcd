"""Response bodies of instances, runs and environments in Fleet's format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from hillclimb.minifleet.export import VERSION
from hillclimb.minifleet.framework.app import App
from hillclimb.minifleet.server.settings import TEAM_ID
from hillclimb.minifleet.server.state.instances import Instance, iso

Row = dict[str, JsonValue]


def instance_row(instance: Instance, base_url: str) -> Row:
    """Return an instance; `base_url` is the client's address of this server, with a final slash."""
    request, root = instance.request, f"{base_url}{instance.id}/"
    api = f"{root}api/v1/env"
    return {
        "instance_id": instance.id,
        "env_key": request.env_key,
        "version": instance.version,
        "status": instance.status,
        "subdomain": instance.id,
        "created_at": iso(instance.created_at),
        "updated_at": iso(instance.updated_at),
        "terminated_at": None if instance.ended_at is None else iso(instance.ended_at),
        "team_id": TEAM_ID,
        "region": instance.region,
        "env_variables": request.env_variables,
        "data_key": request.data_key,
        "data_version": request.data_version,
        "run_id": request.run_id,
        "heartbeat_interval": request.heartbeat_interval,
        "health": instance.status == "running",
        "urls": {
            "root": root,
            "app": [root],
            "api": f"{root}api/v1",
            "health": f"{api}/health",
            "manager": {
                "api": api,
                "docs": f"{api}/docs",
                "reset": f"{api}/reset",
                "diff": f"{api}/diff",
                "snapshot": f"{api}/snapshot",
                "execute_verifier_function": f"{api}/execute_verifier_function",
                "execute_verifier_function_with_upload": (
                    f"{api}/execute_verifier_function_with_upload"
                ),
            },
        },
    }


def run_rows(instances: Iterable[Instance]) -> list[Row]:
    """Return one row for each run id of the instances."""
    by_run: dict[str, list[Instance]] = {}
    for instance in instances:
        if instance.request.run_id:
            by_run.setdefault(instance.request.run_id, []).append(instance)
    return [
        {
            "run_id": run_id,
            "running_count": sum(each.is_alive for each in group),
            "total_count": len(group),
            "first_created_at": iso(min(each.created_at for each in group)),
            "last_created_at": iso(max(each.created_at for each in group)),
        }
        for run_id, group in by_run.items()
    ]


def environment_row(app: App) -> Mapping[str, JsonValue]:
    """Return an environment."""
    return {
        "env_key": app.key,
        "name": app.key,
        "description": f"A miniature {app.key} with {len(app.tools)} tools",
        "default_version": VERSION,
        "versions": {VERSION: VERSION},
    }
