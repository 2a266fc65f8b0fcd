"""`compare`: two runs, or two steps of one, task by task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.compute import si
from hillclimb.cli.runs.results.report import (
    BREAKDOWNS,
    by_option,
    print_breakdown,
    print_comparisons,
)
from hillclimb.cli.runs.results.scoring import print_scoring, threshold_option, verifier_option
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.run_reference import RUN_AT_STEP
from hillclimb.protocol.payloads.results.comparison import (
    BehaviourPair,
    ConfigDifference,
    DecodingDifference,
    FlippedTask,
)
from hillclimb.protocol.payloads.results.compute import Amount, ComputeAmounts

MAX_KEYS, MAX_TASKS = 20, 10
"""Keys of the difference, and tasks per direction, that are printed."""
MAX_VALUE = 24
FIGURES = ("turns", "tool_calls", "tool_errors", "repeated_calls", "tokens_of_passes",
           "tokens_of_fails")  # fmt: skip


@main.command()
@click.argument("a", metavar="A[@STEP]", type=RUN_AT_STEP)
@click.argument("b", metavar="B[@STEP]", type=RUN_AT_STEP)
@click.option("-k", type=click.IntRange(1, 256), default=1, show_default=True, help="Of pass@k.")
@click.option("--rule", type=click.Choice(["v1", "v2"]), default="v2", show_default=True,
              help="Version of the rule of verdicts.")  # fmt: skip
@click.option(
    "--at", type=click.Choice(get_args(Amount)),
    help="At equal amounts: the last evaluation of each at or below the smaller total.",
)  # fmt: skip
@by_option
@threshold_option
@verifier_option
@command
def compare(  # noqa: PLR0913 (one per option)
    *,
    a: str,
    b: str,
    k: int,
    rule: str,
    at: Amount | None,
    by: str,
    threshold: float | None,
    verifier: str | None,
    as_json: bool,
) -> None:
    """Compare evaluation B with evaluation A, each of a run's last step or of STEP.

    Over the tasks that both have: what differs in the specs, verdicts, the tasks gained and lost
    with a rollout of each side, and how the policies behaved.
    """
    with connect() as client:
        comparison = client.compare(
            a, b, rule=rule, k=k, threshold=threshold, at=at, verifier=verifier
        )
    if as_json:
        print_json(comparison)
        return
    for name, side in (("a", comparison.a), ("b", comparison.b)):
        print_text(f"{name}: {side.name}  {side.run_id}@{side.step}")
        if side.spent is not None:
            print_text(f"   {_words(side.spent)}", style="dim")
    if comparison.at:
        print_text(f"the last evaluations at equal {comparison.at}", style="dim")
    print_differences(comparison.config_diff)
    for decoding, difference in comparison.decodings.items():
        low, high = difference.temperatures
        same = f"temperature {low:g}" if low == high else f"temperatures {low:g} and {high:g}"
        out.print(f"\n[bold]{decoding}[/bold] ({same}), pass@{comparison.k} of a and b")
        _print_decoding(difference, by)
    print_scoring(comparison.threshold, comparison.verifier)
    if comparison.num_candidates > 1:
        print_text(
            f"rule {comparison.rule}: p is corrected for the choice from"
            f" {comparison.num_candidates} pairs of evaluations (docs/verdicts.md)",
            style="dim",
        )


def _words(spent: ComputeAmounts) -> str:
    flops = "" if spent.flops is None else f", {si(spent.flops)}FLOP"
    return f"trained with {spent.num_rollouts} rollouts, {si(spent.num_tokens)} tokens{flops}"


def print_differences(differences: Sequence[ConfigDifference]) -> None:
    """Print the keys in which two specs differ, or that there is none."""
    if not differences:
        print_text("the specs do not differ")
        return
    rows = [(each.pointer, _short(each.a), _short(each.b)) for each in differences[:MAX_KEYS]]
    print_table(table(("key", "a", "b"), rows))
    more = len(differences) - MAX_KEYS
    if more > 0:
        print_text(f"and {more} more keys: see --json", style="dim")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _print_decoding(difference: DecodingDifference, by: str) -> None:
    if by in BREAKDOWNS:
        print_breakdown(by, getattr(difference, BREAKDOWNS[by]), sides=("a", "b"))
    else:
        rows = {**difference.environments, "[bold]all[/bold]": difference.all}
        print_comparisons(rows, sides=("a", "b"))
    alone = difference.num_tasks_of_a_alone, difference.num_tasks_of_b_alone
    if any(alone):
        print_text(f"tasks of one side alone: {alone[0]} of a, {alone[1]} of b", style="dim")
    for name, stop in zip("ab", difference.stopped_early, strict=True):
        if stop is not None:
            print_text(f"{name} {stop.sentence}", style="dim")
    _print_tasks("gained", difference.gained)
    _print_tasks("lost", difference.lost)
    _print_behaviour(difference.behaviour)


def _print_tasks(word: str, tasks: Sequence[FlippedTask]) -> None:
    for each in tasks[:MAX_TASKS]:
        print_text(f"{word} {each.task_key}  a: {each.a_rollout}  b: {each.b_rollout}")
    if len(tasks) > MAX_TASKS:
        print_text(f"and {len(tasks) - MAX_TASKS} more {word}: see --json", style="dim")


def _print_behaviour(pair: BehaviourPair) -> None:
    """Print the means of both sides over all environments."""
    first, second = pair.a.get("all"), pair.b.get("all")
    if first is None or second is None:
        return
    rows = [
        (name.replace("_", " "), _mean(getattr(first, name)), _mean(getattr(second, name)))
        for name in FIGURES
    ]
    print_table(table(("per rollout", "a>", "b>"), rows))


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
