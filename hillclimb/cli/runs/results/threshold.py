"""The option `--threshold`: figures of the same rollouts under another threshold."""

from __future__ import annotations

import click

from hillclimb.cli.console import print_text
from hillclimb.cli.finite import FiniteRange

THRESHOLD = FiniteRange(min=0.0, max=1.0, min_open=True)

threshold_option = click.option(
    "--threshold", type=THRESHOLD, metavar="SCORE",
    help="Rescore: a rollout passes from this score on.",
)  # fmt: skip


def print_threshold(threshold: float | None) -> None:
    """Print that figures were rescored; nothing where they were not."""
    if threshold is not None:
        print_text(f"rescored: a rollout passes from a score of {threshold:g} on", style="dim")
