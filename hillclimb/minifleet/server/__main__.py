"""`python -m trainer.envs.minifleet.server serve|tasks`: what `hillclimb fleet` starts."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from trainer.data.tasks import minifleet_tasks
from trainer.envs.minifleet.export import tasks_document
from trainer.envs.minifleet.server.serving import configure
from trainer.envs.minifleet.server.settings import ServerSettings
from trainer.envs.minifleet.server.wirefaults import FaultRule, WireFaults
from trainer.errors import DataError
from trainer.serving import base_url, listen

EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code (2 for wrong usage)."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "tasks":
            _export(given)
        else:
            _serve(given)
    except (OSError, DataError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED
    except ValidationError as error:
        for each in error.errors():
            place = ".".join(map(str, each["loc"])) or "the file"
            sys.stderr.write(f"error: faults: {place}: {each['msg']}\n")
        return EXIT_FAILED
    return 0


def _faults(given: argparse.Namespace) -> WireFaults:
    """The file's rules, and one of the flags' for all requests."""
    text = given.faults.read_text() if given.faults else "{}"
    faults = WireFaults.model_validate_json(text)
    rule = FaultRule(
        latency_s=given.latency, error_rate=given.error_rate, hang_rate=given.hang_rate
    )
    rules = faults.rules if rule == FaultRule() else (*faults.rules, rule)
    return WireFaults(seed=faults.seed if given.seed is None else given.seed, rules=rules)


def _serve(given: argparse.Namespace) -> None:
    settings = ServerSettings(
        api_key=given.api_key,
        instance_limit=given.instance_limit,
        default_ttl_s=given.default_ttl,
        tasks_per_env=given.tasks_per_env,
        mcp_sessions=given.mcp_sessions,
        runner_token=given.runner_token,
        faults=_faults(given),
    )
    listener = listen(given.host, given.port)
    url = base_url(listener)
    told = json.dumps({"base_url": url}) if given.json else f"FLEET_BASE_URL={url}"
    sys.stdout.write(told + "\n")
    sys.stdout.flush()
    uvicorn.Server(configure(settings)).run(sockets=[listener])


def _export(given: argparse.Namespace) -> None:
    tasks = minifleet_tasks(
        given.env, given.split, given.number, given.seed, held_out_share=given.held_out_share
    )
    sys.stdout.write(json.dumps(tasks_document(tasks), indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.envs.minifleet.server")
    commands = parser.add_subparsers(required=True, dest="command")
    defaults = ServerSettings()
    serve = commands.add_parser("serve", help="serve Fleet's contract over the miniature apps")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0, help="0: any free port")
    key = os.environ.get("FLEET_API_KEY") or defaults.api_key
    serve.add_argument("--api-key", default=key, help="default: FLEET_API_KEY")
    serve.add_argument("--instance-limit", type=int, default=defaults.instance_limit)
    serve.add_argument("--default-ttl", type=int, default=defaults.default_ttl_s)
    serve.add_argument("--tasks-per-env", type=int, default=defaults.tasks_per_env)
    serve.add_argument("--mcp-sessions", action="store_true")
    serve.add_argument("--runner-token")
    serve.add_argument("--faults", type=Path, help="a fault file (JSON)")
    serve.add_argument("--latency", type=float, default=0.0)
    serve.add_argument("--error-rate", type=float, default=0.0)
    serve.add_argument("--hang-rate", type=float, default=0.0)
    serve.add_argument("--seed", type=int)
    serve.add_argument("--json", action="store_true", help="say where it listens as JSON")
    tasks = commands.add_parser("tasks", help="write tasks as Fleet's tasks JSON")
    tasks.add_argument("--env", action="append", required=True)
    tasks.add_argument("--split", choices=("train", "eval"), required=True)
    tasks.add_argument("--number", type=int, required=True, help="tasks per environment")
    tasks.add_argument("--seed", type=int, default=0)
    tasks.add_argument("--held-out-share", type=float, default=0.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
