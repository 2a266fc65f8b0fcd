"""Options `--threshold` and `--verifier`: figures of the same rollouts, scored in another way."""

from __future__ import annotations

import click

from hillclimb.cli.terminal.console import print_text
from hillclimb.cli.terminal.finite import FiniteRange

THRESHOLD = FiniteRange(min=0.0, max=1.0, min_open=True)

threshold_option = click.option(
    "--threshold", type=THRESHOLD, metavar="SCORE",
    help="Rescore: a rollout passes from this score on.",
)  # fmt: skip
verifier_option = click.option(
    "--verifier", metavar="VERSION",
    help="Take the grades of the rescoring by VERSION (see `hillclimb rescore`).",
)  # fmt: skip


def print_scoring(threshold: float | None, verifier: str | None) -> None:
    """Print in which way figures were rescored; nothing where they were not."""
    if threshold is not None:
        print_text(f"rescored: a rollout passes from a score of {threshold:g} on", style="dim")
    if verifier is not None:
        print_text(f"rescored by {verifier}", style="dim")
