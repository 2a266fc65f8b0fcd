"""`submit` and `plan`: send a spec, or see what it would become."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hillclimb.cli.console import out, print_json, print_text
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.watch import follow_run
from hillclimb.spec_file import read_spec

SPEC = click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path, dir_okay=False))
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)


@main.command()
@SPEC
@SET
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@click.option("--idempotency-key", metavar="KEY", help="Make a repeated submit the same run.")
@command
def submit(
    *,
    spec_file: Path,
    assignments: tuple[str, ...],
    wait: bool,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Create a run from SPEC (YAML or JSON)."""
    with connect() as client:
        run = client.submit(read_spec(spec_file, assignments), idempotency_key=idempotency_key)
        if wait:
            sys.exit(follow_run(client, run["id"], as_json=as_json))
        if as_json:
            print_json(run)
        else:
            out.print(f"{run['id']}  {run['status']}  {client.url}/runs/{run['id']}")


@main.command()
@SPEC
@SET
@command
def plan(*, spec_file: Path, assignments: tuple[str, ...], as_json: bool) -> None:
    """Validate SPEC and print it with every default filled in; creates nothing."""
    with connect() as client:
        planned = client.plan(read_spec(spec_file, assignments))
    for warning in () if as_json else planned.get("warnings", ()):
        print_text(f"warning: {warning}", style="yellow")
    print_json(planned if as_json else planned["spec"])
