"""`rescore`: figures of the stored rollouts of a run, scored in another way."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.scoring import THRESHOLD, print_scoring
from hillclimb.cli.terminal.console import percent, print_json, print_table, print_text, table
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.results.evals import EvalList, RescoringPayload
from hillclimb.protocol.payloads.results.patterns import PatternSearchPayload, PatternSearchResult

COLUMNS = ("step>", "decoding", "n>", "stored pass@1>", "from>", "n>", "rescored pass@1>")
PRESENT = "present"


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option(
    "--threshold", type=THRESHOLD, metavar="SCORE", help="A rollout passes from this score on."
)
@click.option(
    "--verifier", metavar="VERSION",
    help="`present`: replay the rollouts, and grade them by the service's present verifier; or the"
    " version of an earlier rescoring.",
)  # fmt: skip
@click.option(
    "--patterns", is_flag=True,
    help="Search the rollouts for failure patterns again, by the service's present detectors.",
)  # fmt: skip
@click.option("--step", type=click.IntRange(min=0), help="Only rollouts of this step.")
@click.option("--split", type=click.Choice(["eval", "train"]), default="eval", show_default=True,
              help="Rollouts of evaluations, or of training.")  # fmt: skip
@command
def rescore(  # noqa: PLR0913 (one per option)
    *,
    run_id: str,
    threshold: float | None,
    verifier: str | None,
    patterns: bool,
    step: int | None,
    split: str,
    as_json: bool,
) -> None:
    """Score the stored rollouts of RUN in another way, without new rollouts.

    The stored grades stay: those of another verifier stand beside them. `verdicts` and `compare`
    have the options --threshold and --verifier too; `patterns` has --detectors. Without an option,
    the rescorings are listed.
    """
    if patterns and (threshold is not None or verifier is not None):
        raise click.UsageError("--patterns searches and grades nothing: give it alone")
    with connect() as client:
        if patterns:
            _print_search(client.search_patterns(run_id, split=split, step=step), as_json=as_json)
        elif threshold is None and verifier is None:
            _print_all(client, run_id, as_json=as_json)
        elif verifier == PRESENT:
            rescoring = client.rescore(run_id, split=split, step=step)
            if as_json and threshold is None:
                print_json(rescoring)
                return
            if not as_json:
                _print_rescorings([rescoring])
            if split != "train":
                _print_rates(client, run_id, threshold, rescoring.verifier, as_json=as_json)
        else:
            _print_rates(client, run_id, threshold, verifier, as_json=as_json)


def _print_all(client: Client, run_id: str, *, as_json: bool) -> None:
    rescorings = client.rescorings(run_id)
    if as_json:
        print_json(rescorings)
        return
    _print_rescorings(rescorings.data)
    _print_searches(client.pattern_searches(run_id).data)


def _print_rates(
    client: Client, run_id: str, threshold: float | None, verifier: str | None, *, as_json: bool
) -> None:
    rescored = client.evals(run_id, threshold=threshold, verifier=verifier)
    if as_json:
        print_json(rescored)
        return
    print_table(table(COLUMNS, _rows(client.evals(run_id), rescored)))
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


def _print_search(result: PatternSearchResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    _print_searches([result])
    if result.num_by_trainer:
        print_text(f"  {result.num_by_trainer} were searched by it when they were rolled out")
    for reason, count in result.unsearched.items():
        print_text(f"  {count} not searched: {reason}", style="dim")


def _print_searches(searches: Sequence[PatternSearchPayload]) -> None:
    for each in searches:
        print_text(
            f"detectors of version {each.version}: {each.num_searched} rollouts searched again,"
            f" {each.num_changed} otherwise than stored"
        )


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
