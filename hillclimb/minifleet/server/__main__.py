"""`python -m hillclimb.minifleet.server serve|tasks`, the program behind `hillclimb fleet`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from hillclimb.minifleet.export import tasks_document
from hillclimb.minifleet.server.faults.plan import FaultRule, WireFaults
from hillclimb.minifleet.server.serving import configure
from hillclimb.minifleet.server.settings import MinifleetSettings
from hillclimb.minifleet.tasks import TaskGenerationError, minifleet_tasks
from hillclimb.process.network.serving import base_url, listen

EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code (2 for wrong usage)."""
    args = _parser().parse_args(arguments)
    try:
        if args.command == "tasks":
            _export(args)
        else:
            _serve(args)
    except (OSError, TaskGenerationError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED
    except ValidationError as error:
        for each in error.errors():
            place = ".".join(map(str, each["loc"])) or "the file"
            sys.stderr.write(f"error: faults: {place}: {each['msg']}\n")
        return EXIT_FAILED
    return 0


def _faults(args: argparse.Namespace) -> WireFaults:
    """Return the rules of the fault file, and a rule from the flags for all requests."""
    text = args.faults.read_text() if args.faults else "{}"
    faults = WireFaults.model_validate_json(text)
    rule = FaultRule(latency_s=args.latency, error_rate=args.error_rate, hang_rate=args.hang_rate)
    rules = faults.rules if rule == FaultRule() else (*faults.rules, rule)
    return WireFaults(seed=faults.seed if args.seed is None else args.seed, rules=rules)


def _serve(args: argparse.Namespace) -> None:
    settings = MinifleetSettings(
        api_key=args.api_key,
        instance_limit=args.instance_limit,
        default_ttl_s=args.default_ttl,
        tasks_per_env=args.tasks_per_env,
        mcp_sessions=args.mcp_sessions,
        runner_token=args.runner_token,
        faults=_faults(args),
    )
    listener = listen(args.host, args.port)
    url = base_url(listener)
    address = json.dumps({"base_url": url}) if args.json else f"FLEET_BASE_URL={url}"
    sys.stdout.write(address + "\n")
    sys.stdout.flush()
    uvicorn.Server(configure(settings)).run(sockets=[listener])


def _export(args: argparse.Namespace) -> None:
    tasks = minifleet_tasks(
        args.env, args.split, args.number, args.seed, held_out_share=args.held_out_share
    )
    sys.stdout.write(json.dumps(tasks_document(tasks), indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hillclimb.minifleet.server")
    commands = parser.add_subparsers(required=True, dest="command")
    defaults = MinifleetSettings()
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
    serve.add_argument("--json", action="store_true", help="print the address as JSON")
    tasks = commands.add_parser("tasks", help="write tasks as Fleet's tasks JSON")
    tasks.add_argument("--env", action="append", required=True)
    tasks.add_argument("--split", choices=("train", "eval"), required=True)
    tasks.add_argument("--number", type=int, required=True, help="tasks per environment")
    tasks.add_argument("--seed", type=int, default=0)
    tasks.add_argument("--held-out-share", type=float, default=0.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
