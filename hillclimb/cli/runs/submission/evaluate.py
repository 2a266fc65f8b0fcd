"""`eval`: evaluate a checkpoint in a separate run."""

from __future__ import annotations

import sys

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.cli.terminal.run_reference import RUN_AT_STEP
from hillclimb.client.client import Client
from hillclimb.client.errors import NoCheckpoint
from hillclimb.client.spec_file import assign
from hillclimb.protocol.payloads.checkpoints import CheckpointPayload
from hillclimb.spec.preflight.evaluation import evaluation_of


@main.command("eval")
@click.argument("source", metavar="RUN[@STEP]", type=RUN_AT_STEP)
@SET
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@command
def evaluate(*, source: str, assignments: tuple[str, ...], wait: bool, as_json: bool) -> None:
    """Evaluate a checkpoint of RUN, its newest by default, under every decoding of its spec."""
    run_id, _, step = source.partition("@")
    with connect() as client:
        checkpoint = _checkpoint(client, run_id, step)
        run = client.run(run_id)
        spec = evaluation_of(
            run.spec, run_id=run.id, step=checkpoint.step, attempt=checkpoint.attempt
        )
        for assignment in assignments:
            assign(spec, assignment)
        run = client.submit(spec)
        if wait:
            sys.exit(follow_run(client, run.id, as_json=as_json))
        if as_json:
            print_json(run)
        else:
            print_text(f"{run.id}  {run.status}  {client.url}/runs/{run.id}")


def _checkpoint(client: Client, run_id: str, step: str) -> CheckpointPayload:
    if step and not step.isdigit():
        raise click.BadParameter(f"the step after @ is a number, not {step!r}")
    saved = client.checkpoints(run_id).data
    matches = [entry for entry in saved if not step or entry.step == int(step)]
    if not matches:
        steps = ", ".join(str(entry.step) for entry in saved) or "none"
        raise NoCheckpoint(
            f"{run_id} has no checkpoint{f' at step {step}' if step else ''} (steps with one:"
            f" {steps})"
        )
    usable = [entry for entry in matches if entry.qualification != "refused"] or matches
    return max(usable, key=lambda entry: (entry.step, entry.attempt))
