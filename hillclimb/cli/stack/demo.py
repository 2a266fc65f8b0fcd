"""`demo`: start the stack, train the example run and print the report with conclusions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import print_report
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.stack.lifecycle import StackRefused, read_options, say
from hillclimb.cli.terminal.console import duration, json_of, out
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.spec_file import read_spec
from hillclimb.protocol.payloads.results.reports import ReportPayload
from hillclimb.stack import control
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import CODE_ROOT

SPEC = CODE_ROOT / "examples" / "demo.yaml"
SHORT = (
    "name=demo-short",
    "schedule.total_steps=6",
    "data.eval_tasks_per_env=12",
    "eval.interval=0",
    "checkpoints.interval=3",
)
"""Overrides of `--short`: the same path end to end, but too short to learn much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of `demo`."""

    spec: Path
    short: bool
    report: Path
    stop_after: bool


@main.command()
@click.option(
    "--short", is_flag=True, help="Run a few steps only, to test the path rather than learning."
)
@click.option("--down", "stop_after", is_flag=True, help="Stop the stack at the end.")
@click.option(
    "--report",
    default=Path("demo-report.json"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the report.",
)
@click.option(
    "--spec",
    default=SPEC,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Spec of another run.",
)
@command
def demo(*, short: bool, stop_after: bool, report: Path, spec: Path, as_json: bool) -> None:
    """Start the stack, train the example run, print pass@1 before and after per environment."""
    options = DemoOptions(spec=spec, short=short, report=report, stop_after=stop_after)
    try:
        control.up_detached(read_options(), say=say)
        status = run_demo(options, as_json=as_json)
    except StackError as error:
        raise StackRefused(str(error)) from error
    finally:
        if stop_after:
            control.down(read_options().state_dir, say=say)
    raise SystemExit(status)


def run_demo(options: DemoOptions, *, as_json: bool) -> int:
    """Submit and follow the run, write and print its report; return the exit code."""
    with connect() as client:
        run = client.submit(read_spec(options.spec, SHORT if options.short else ()))
        page = client.session_url(f"/runs/{run.id}")
        if not as_json:
            out.print(f"run {run.id}, live at {page}", soft_wrap=True)
        status = follow_run(client, run.id, as_json=as_json)
        if status != Exit.OK:
            return status
        report = client.report(run.id)
        options.report.write_text(json.dumps(json_of(report), indent=2) + "\n")
        if not as_json:
            print_report(report)
            for sentence in conclusions(report, _habits(run.spec)):
                out.print(sentence)
            out.print(f"\nreport: {options.report}", soft_wrap=True)
            if not options.stop_after:
                page = client.session_url(f"/runs/{run.id}")
                out.print(f"run page: {page}", soft_wrap=True)
                out.print("stop everything with `make down`")
    return Exit.OK


def _habits(spec: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the warm start's deliberate bad habits by environment, from the model's card."""
    source = str(spec["model"]["source"])
    card = CODE_ROOT / "assets" / source.removeprefix("builtin:") / "CARD.json"
    if not source.startswith("builtin:") or not card.is_file():
        return {}
    habits: dict[str, str] = json.loads(card.read_text()).get("habits_in_words", {})
    return habits


def conclusions(report: ReportPayload, habits: Mapping[str, str]) -> list[str]:
    """Return lines about the warm start's bad habits and the failures before and after."""
    lines = []
    if habits:
        lines.append("\nBad habits that were deliberately trained into the warm start:")
        lines += [f"  {env}: {habit}" for env, habit in sorted(habits.items())]
    for decoding, comparison in report.comparisons.items():
        lines.append(f"\nFailed {decoding} rollouts, before → after:")
        lines += [
            f"  {failure.before:>4} → {failure.after:<4} {failure.meaning}"
            for failure in comparison.failures.values()
        ]
    lines.append(f"\ntraining took {duration(report.training_seconds)} (without evaluations)")
    return lines
