"""`timeline`: when the parts of a run or a step took place, as a trace for ui.perfetto.dev."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.errors import HillclimbError

VIEWER = "https://ui.perfetto.dev"


class NotWritten(HillclimbError):
    """The file cannot be written."""


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--step", type=click.IntRange(1), help="A training step; default: the whole run.")
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: standard output.",
)
@command
def timeline(*, run_id: str, step: int | None, out: Path | None, as_json: bool) -> None:
    """Write the timeline of RUN as a trace, to open at ui.perfetto.dev.

    Of a step: its phases, the learner's parts, every rollout with its turns and tool calls, and the
    load of each engine. Of the whole run: its statuses and phases.
    """
    with connect() as client:
        trace = client.timeline(run_id, step=step)
    text = json.dumps(trace.model_dump(mode="json", by_alias=True)) + "\n"
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text)
    except OSError as error:
        raise NotWritten(f"{out} cannot be written: {error.strerror}") from error
    facts = {"file": str(out), "size_bytes": len(text)} | dict(trace.other_data)
    if as_json:
        print_json(facts)
        return
    print_text(f"{out}: {facts.get('rollouts', 0)} rollouts; open it at {VIEWER}")
    if facts.get("rollouts_without_times"):
        number = facts["rollouts_without_times"]
        print_text(f"{number} rollouts have no stored times and are not drawn", style="yellow")
