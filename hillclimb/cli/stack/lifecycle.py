"""`up`, `down`, `status`, `doctor`: control and check the embedded stack on this machine."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from hillclimb.cli.main import command, main
from hillclimb.cli.terminal.console import err, out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.errors import HillclimbError
from hillclimb.stack import control, doctor
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import StackOptions

LEVEL_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}


class StackRefused(HillclimbError):
    """The embedded stack refused or failed a command."""


def read_options() -> StackOptions:
    """Return the stack's options from the environment and the working directory."""
    try:
        return StackOptions.from_environment(os.environ, Path.cwd())
    except StackError as error:
        raise StackRefused(str(error)) from error


def say(line: str) -> None:
    """Print a line of the supervisor on standard error; standard output is for results."""
    err.print(line, style="dim", markup=False, soft_wrap=True)


@main.command()
@click.option("--detach", is_flag=True, help="Return once all services are ready.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the API and run pages.")
@click.option(
    "--api-processes", type=click.IntRange(1, 64), help="Processes of the API, one for each core."
)
@click.option(
    "--with-sky", is_flag=True, help="Also start SkyPilot's API server, for runs on clouds."
)
@command
def up(
    *, detach: bool, port: int | None, api_processes: int | None, with_sky: bool, as_json: bool
) -> None:
    """Start PostgreSQL, Valkey, API, worker, beat and a runner; Ctrl-C stops them all."""
    options = read_options()
    options = options if port is None else replace(options, api_port=port)
    if api_processes is not None:
        options = replace(options, api_processes=api_processes)
    options = replace(options, with_sky=options.with_sky or with_sky)
    try:
        if not detach:
            sys.exit(control.up(options, say=say))
        record = control.up_detached(options, say=say)
    except StackError as error:
        raise StackRefused(str(error)) from error
    if as_json:
        print_json({"state": record.state, "url": record.url, "ports": record.ports})
    else:
        out.print(f"up: {record.url}")


@main.command()
@command
def down(*, as_json: bool) -> None:
    """Stop the stack; running trainers save a checkpoint first, and `up` resumes them."""
    try:
        stopped = control.down(read_options().state_dir, say=say)
    except StackError as error:
        raise StackRefused(str(error)) from error
    if as_json:
        print_json({"stopped": stopped})
    else:
        out.print("down: everything is stopped" if stopped else "down: nothing was running")


@main.command()
@command
def status(*, as_json: bool) -> None:
    """Show the services of the stack; exit code 1 unless all are ready."""
    record = control.status(read_options().state_dir)
    now = time.time()
    rows = [
        {
            "service": name,
            "state": service.state,
            "pid": service.process.pid if service.process else None,
            "port": service.port,
            "uptime_s": round(now - service.ready_at) if service.ready_at else None,
            "restarts": service.restarts,
        }
        for name, service in record.services.items()
    ]
    if as_json:
        print_json({"state": record.state, "url": record.url, "services": rows})
    else:
        out.print(f"stack {record.state}" + (f"  {record.url}" if record.state == "ready" else ""))
        columns = ["service", "state", "pid>", "port>", "uptime_s>", "restarts>"]
        print_table(table(columns, [list(row.values()) for row in rows]))
    sys.exit(Exit.OK if record.state == "ready" else Exit.ERROR)


@main.command("doctor")
@command
def examine(*, as_json: bool) -> None:
    """Check this machine and say how to fix what is missing."""
    checks = []
    for check in doctor.examine(read_options()):
        checks.append(check)
        if not as_json:
            _print_check(check)
    if as_json:
        print_json([asdict(check) for check in checks])
    sys.exit(Exit.ERROR if any(check.level == "fail" for check in checks) else Exit.OK)


def _print_check(check: doctor.Check) -> None:
    style = LEVEL_STYLE[check.level]
    out.print(f"[{style}]{check.level:>4}[/{style}]  ", end="")
    print_text(f"{check.name}: {check.detail}")
    if check.fix:
        print_text(f"      {check.fix}", style="dim")
