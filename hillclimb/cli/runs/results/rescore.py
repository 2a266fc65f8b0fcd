"""`rescore`: figures of the stored rollouts of a run, scored in another way."""

from __future__ import annotations

import click

from hillclimb.cli.console import percent, print_json, print_table, print_text, table
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.scoring import THRESHOLD, print_scoring
from hillclimb.protocol.payloads.results.evals import EvalList, RescoringPayload

COLUMNS = ("step>", "decoding", "n>", "stored pass@1>", "from>", "n>", "rescored pass@1>")
PRESENT = "present"


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--threshold", type=THRESHOLD, metavar="SCORE", help="A rollout passes from this score on."
)
@click.option(
    "--verifier", metavar="VERSION",
    help="`present`: replay the rollouts, and grade them by the service's present verifier; or the"
    " version of an earlier rescoring.",
)  # fmt: skip
@click.option("--step", type=click.IntRange(min=0), help="Replay only rollouts of this step.")
@click.option("--split", type=click.Choice(["eval", "train"]), default="eval", show_default=True)
@command
def rescore(
    *,
    run_id: str,
    threshold: float | None,
    verifier: str | None,
    step: int | None,
    split: str,
    as_json: bool,
) -> None:
    """Score the stored rollouts of RUN in another way, without new rollouts.

    The stored grades stay: those of another verifier stand beside them. `verdicts` and `compare`
    have the options --threshold and --verifier too. Without one, the rescorings are listed.
    """
    with connect() as client:
        if threshold is None and verifier is None:
            rescorings = client.rescorings(run_id)
            if as_json:
                print_json(rescorings)
            else:
                _print_rescorings(rescorings.data)
            return
        if verifier == PRESENT:
            rescoring = client.rescore(run_id, split=split, step=step)
            verifier = rescoring.verifier
            if as_json and threshold is None:
                print_json(rescoring)
                return
            if not as_json:
                _print_rescorings([rescoring])
            if split == "train":
                return
        rescored = client.evals(run_id, threshold=threshold, verifier=verifier)
        stored = client.evals(run_id)
    if as_json:
        print_json(rescored)
        return
    print_table(table(COLUMNS, _rows(stored, rescored)))
    print_scoring(threshold, verifier)


def _print_rescorings(rescorings: list[RescoringPayload]) -> None:
    for each in rescorings:
        print_text(
            f"{each.verifier}: {each.num_graded} of {each.num_rollouts} rollouts graded,"
            f" {each.num_changed} otherwise than stored"
        )
        for reason, count in each.ungraded.items():
            print_text(f"  {count} without a grade: {reason}", style="dim")
    if not rescorings:
        print_text("not rescored yet: see --verifier present, and --threshold")


def _rows(stored: EvalList, rescored: EvalList) -> list[list[object]]:
    before = {(each.step, each.decoding): each for each in stored.data}
    pairs = [(before.get((each.step, each.decoding)), each) for each in rescored.data]
    return [
        [
            new.step,
            new.decoding,
            old.all.n,
            percent(old.all.pass_at_1),
            f"{old.pass_threshold:g}",
            new.all.n,
            percent(new.all.pass_at_1),
        ]
        for old, new in pairs
        if old is not None
    ]
