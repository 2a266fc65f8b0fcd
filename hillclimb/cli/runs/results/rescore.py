"""`rescore`: figures of the stored rollouts of a run, scored in another way."""

from __future__ import annotations

import click

from hillclimb.cli.console import percent, print_json, print_table, table
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.threshold import THRESHOLD, print_threshold
from hillclimb.protocol.payloads.results.evals import EvalList

COLUMNS = ("step>", "decoding", "n>", "stored pass@1>", "from>", "rescored pass@1>")


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--threshold", type=THRESHOLD, metavar="SCORE", required=True,
    help="A rollout passes from this score on.",
)  # fmt: skip
@command
def rescore(*, run_id: str, threshold: float, as_json: bool) -> None:
    """Score the stored rollouts of RUN's evaluations in another way, without new rollouts.

    Nothing stored changes. `verdicts` and `compare` have the same --threshold.
    """
    with connect() as client:
        rescored = client.evals(run_id, threshold=threshold)
        stored = client.evals(run_id)
    if as_json:
        print_json(rescored)
        return
    print_table(table(COLUMNS, _rows(stored, rescored)))
    print_threshold(threshold)


def _rows(stored: EvalList, rescored: EvalList) -> list[list[object]]:
    before = {(each.step, each.decoding): each for each in stored.data}
    pairs = [(before.get((each.step, each.decoding)), each) for each in rescored.data]
    return [
        [
            new.step,
            new.decoding,
            new.all.n,
            percent(old.all.pass_at_1),
            f"{old.pass_threshold:g}",
            percent(new.all.pass_at_1),
        ]
        for old, new in pairs
        if old is not None
    ]
