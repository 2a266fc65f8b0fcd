"""`fork`: a new run from a run's spec with changes, optionally from its checkpoint."""

from __future__ import annotations

import sys

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.compare import print_differences
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import out, print_json, print_text
from hillclimb.cli.terminal.run_reference import RUN_AT_STEP
from hillclimb.client.spec_file import read_assignments
from hillclimb.protocol.payloads.runs import ForkPayload


@main.command()
@click.argument("source", metavar="RUN[@STEP]", type=RUN_AT_STEP)
@SET
@click.option("--name", metavar="NAME", help="Default: the run's name with `fork` appended.")
@click.option("--watch", "wait", is_flag=True, help="Follow the new run to its end.")
@click.option(
    "--idempotency-key", metavar="KEY", help="Repeated forks with this key create only one run."
)
@command
def fork(
    *,
    source: str,
    assignments: tuple[str, ...],
    name: str | None,
    wait: bool,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Start a new run from RUN's resolved spec with changes.

    With @STEP it continues from RUN's checkpoint at this step, with weights and optimizer; other
    tasks or another batch size are drawn from their beginning.
    """
    run_id, _, step = source.partition("@")
    if step and not step.isdecimal():
        raise click.BadParameter(f"the step after @ is a number, not {step!r}")
    with connect() as client:
        run = client.fork(
            run_id,
            read_assignments(assignments),
            step=int(step) if step else None,
            name=name,
            idempotency_key=idempotency_key,
        )
        if wait:
            sys.exit(follow_run(client, run.id, as_json=as_json))
        if as_json:
            print_json(run)
        else:
            _print_fork(run, client.url)


def _print_fork(run: ForkPayload, url: str) -> None:
    out.print(f"{run.id}  {run.status}  {url}/runs/{run.id}", soft_wrap=True)
    lineage = run.spec["lineage"]
    start, parent = lineage["resumed_from"], lineage["forked_from"]
    print_text(f"forked from {parent['run_id']}", style="dim")
    if start is not None:
        order = {"continue": "the order of its tasks continues", "restart": "tasks are drawn anew"}
        origin = f"starts at step {start['step']} of {start['run_id']}"
        print_text(f"{origin}; {order[lineage['data_order']]}", style="dim")
    print_differences(run.config_diff)
