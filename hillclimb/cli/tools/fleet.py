"""`fleet`: a local server with Fleet's API, and minifleet's tasks in Fleet's format."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import click

from hillclimb.cli.main import command, main
from hillclimb.cli.terminal.console import out, print_json
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.tools.data_plane import as_flags, become, find_python
from hillclimb.client.errors import HillclimbError
from hillclimb.spec.run import MINIFLEET_ENV_KEYS

MODULE = "hillclimb.minifleet.server"
API_KEY_VARIABLE = "FLEET_API_KEY"


class FleetRefused(HillclimbError):
    """The data plane refused or failed a command."""


@main.group()
def fleet() -> None:
    """Serve the miniature apps as Fleet does, and export their tasks."""


@fleet.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free one.")
@click.option("--api-key", help="Key clients send. Default: FLEET_API_KEY, else `minifleet`.")
@click.option(
    "--instance-limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Limit of concurrent instances.",
)
@click.option(
    "--default-ttl",
    type=click.IntRange(1),
    default=3600,
    show_default=True,
    help="Default time to live of an instance (seconds).",
)
@click.option(
    "--tasks-per-env",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Tasks of each environment and split in the list of tasks.",
)
@click.option("--runner-token", help="Respond 404 to manager calls without this X-Runner-Token.")
@click.option("--mcp-sessions", is_flag=True, help="Issue MCP session ids.")
@click.option(
    "--faults",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Fault rules (JSON).",
)
@click.option("--latency", type=FiniteRange(0), help="Delay added to every request (seconds).")
@click.option("--error-rate", type=FiniteRange(0, 1), help="Share of requests that fail with 502.")
@click.option("--hang-rate", type=FiniteRange(0, 1), help="Share of requests that hang.")
@click.option("--seed", type=int, help="Seed of the faults; the file's by default.")
@command
def serve(
    *, api_key: str | None, as_json: bool, **options: str | float | Path | bool | None
) -> None:
    """Serve Fleet's HTTP and MCP API until Ctrl-C; set FLEET_BASE_URL to its address."""
    arguments = ["serve", *(["--json"] if as_json else []), *as_flags(options)]
    environment = dict(os.environ) | ({API_KEY_VARIABLE: api_key} if api_key else {})
    become(MODULE, arguments, environment)


@fleet.command("tasks")
@click.option(
    "--env",
    "env_keys",
    multiple=True,
    required=True,
    type=ENV_REFERENCE,
    help="Environment; repeatable.",
)
@click.option(
    "--split", type=click.Choice(["train", "eval"]), required=True, help="Split of the tasks."
)
@click.option("-n", "--number", type=click.IntRange(1), required=True, help="Tasks of each.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the tasks.")
@click.option(
    "--held-out-share",
    type=FiniteRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of eval tasks whose template no train task has.",
)
@click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; standard output by default.",
)
@command
def export_tasks(
    *, env_keys: tuple[str, ...], target: Path | None, as_json: bool, **options: str | float
) -> None:
    """Export minifleet tasks as Fleet's tasks JSON, verifier source included."""
    for key in env_keys:
        _refuse_unknown(key)
    arguments = [word for key in env_keys for word in ("--env", key)]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(
        [str(find_python()), "-m", MODULE, "tasks", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FleetRefused(done.stderr.strip().removeprefix("error: "))
    if target is None:
        sys.stdout.write(done.stdout)
        return
    target.write_text(done.stdout)
    number = len(json.loads(done.stdout)["tasks"])
    if as_json:
        print_json({"tasks": number, "file": str(target)})
    else:
        out.print(f"{number} tasks in {target}", soft_wrap=True)


def _refuse_unknown(key: str) -> None:
    if key in MINIFLEET_ENV_KEYS:
        return
    close = difflib.get_close_matches(key, MINIFLEET_ENV_KEYS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(MINIFLEET_ENV_KEYS)}"
    raise click.BadParameter(f"there is no environment {key!r}; {hint}")
