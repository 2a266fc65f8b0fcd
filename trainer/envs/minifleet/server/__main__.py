"""`python -m trainer.envs.minifleet.server serve|tasks`: what `hillclimb fleet` starts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from trainer.data.tasks import minifleet_tasks
from trainer.envs.minifleet.export import tasks_document
from trainer.envs.minifleet.server.serving import base_url, configure, listen
from trainer.envs.minifleet.server.settings import ServerSettings
from trainer.envs.minifleet.server.wirefaults import WireFaults
from trainer.errors import DataError

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
            sys.stderr.write(f"error: {given.faults}: {place}: {each['msg']}\n")
        return EXIT_FAILED
    return 0


def _serve(given: argparse.Namespace) -> None:
    faults = WireFaults()
    if given.faults:
        faults = WireFaults.model_validate_json(given.faults.read_text())
    settings = ServerSettings(
        api_key=given.api_key,
        instance_limit=given.instance_limit,
        default_ttl_s=given.default_ttl,
        tasks_per_env=given.tasks_per_env,
        mcp_sessions=given.mcp_sessions,
        runner_token=given.runner_token,
        faults=faults,
    )
    listener = listen(given.host, given.port)
    sys.stdout.write(json.dumps({"base_url": base_url(listener)}) + "\n")
    sys.stdout.flush()
    uvicorn.Server(configure(settings)).run(sockets=[listener])


def _export(given: argparse.Namespace) -> None:
    tasks = minifleet_tasks(
        given.env, given.split, given.number, given.seed, held_out_share=given.held_out_share
    )
    text = json.dumps(tasks_document(tasks), indent=1) + "\n"
    if given.out:
        given.out.write_text(text)
    else:
        sys.stdout.write(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.envs.minifleet.server")
    commands = parser.add_subparsers(required=True, dest="command")
    defaults = ServerSettings()
    serve = commands.add_parser("serve", help="serve Fleet's contract over the miniature apps")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0, help="0: any free port")
    serve.add_argument("--api-key", default=defaults.api_key)
    serve.add_argument("--instance-limit", type=int, default=defaults.instance_limit)
    serve.add_argument("--default-ttl", type=int, default=defaults.default_ttl_s)
    serve.add_argument("--tasks-per-env", type=int, default=defaults.tasks_per_env)
    serve.add_argument("--mcp-sessions", action="store_true")
    serve.add_argument("--runner-token")
    serve.add_argument("--faults", type=Path, help="a fault file (JSON)")
    tasks = commands.add_parser("tasks", help="write tasks as Fleet's tasks JSON")
    tasks.add_argument("--env", action="append", required=True)
    tasks.add_argument("--split", choices=("train", "eval"), required=True)
    tasks.add_argument("--number", type=int, required=True, help="tasks per environment")
    tasks.add_argument("--seed", type=int, default=0)
    tasks.add_argument("--held-out-share", type=float, default=0.0)
    tasks.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
