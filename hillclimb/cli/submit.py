"""`submit` and `plan`: send a spec, or see what it would become."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hillclimb.cli.console import err, out, print_json
from hillclimb.cli.dataset_view import print_environments
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.watch import follow_run
from hillclimb.client import Client, Json
from hillclimb.spec_file import read_spec

SPEC = click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path, dir_okay=False))
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)
FIRST_EVENTS = 100
"""At most one warning for each environment that a spec may have and each error of lint, and a few
more."""


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
        if run["spec"]["data"].get("dataset") and not wait:
            _tell_warnings(client, run["id"])
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
    if not as_json:
        _print_advice(planned)
    print_json(planned if as_json else planned["spec"])


def _tell_warnings(client: Client, run_id: str) -> None:
    """Say what the service did otherwise than one might expect: its first events have it."""
    for event in client.events(run_id, limit=FIRST_EVENTS)["data"]:
        if event["type"] == "run.warning":
            _warn(event["data"]["message"])


def _warn(sentence: str) -> None:
    err.print(f"warning: {sentence}", style="yellow", markup=False, soft_wrap=True)


def _print_advice(planned: Json) -> None:
    """Print the dataset's numbers and the warnings on standard error: stdout is the spec."""
    if dataset := planned.get("dataset"):
        err.print(f"{dataset['name']}@{dataset['version']}  {dataset['id']}", style="bold")
        print_environments(dataset["envs"], stderr=True)
    for warning in planned.get("warnings", ()):
        _warn(warning)
