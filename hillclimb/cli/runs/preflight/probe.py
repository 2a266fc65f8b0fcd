"""`probe`: test the environments and tasks of a spec before training."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.client.spec_file import read_spec
from hillclimb.protocol.payloads.results.probes import (
    EnvHealthPayload,
    EnvProbePayload,
    ProbePayload,
)

VERDICT_STYLE = {
    "informative": "green",
    "saturated": "cyan",
    "hopeless": "red",
    "split": "magenta",
    "unhealthy": "red",
    "inconclusive": "yellow",
}
COLUMNS = ("environment", "n>", "pass@1>", "signal>", "best G>", "infra>", "call p95>", "verdict")
TABLE_SIZES = (2, 4, 6, 8, 10, 12, 16)


@main.command()
@click.argument(
    "spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@SET
@click.option(
    "--show",
    "run_id",
    metavar="RUN",
    type=RUN_REFERENCE,
    help="Print the results of an earlier probe.",
)
@command
def probe(
    *, spec_file: Path | None, assignments: tuple[str, ...], run_id: str | None, as_json: bool
) -> None:
    """Roll out tasks of SPEC before training: find environments that work and carry signal.

    SPEC may be that of a training run; its section `probe` sets the number of rollouts.
    """
    if (spec_file is None) == (run_id is None):
        raise click.UsageError("give a SPEC to probe, or --show RUN")
    if run_id is not None and assignments:
        raise click.UsageError("--set changes a SPEC, and --show RUN uses none: leave one out")
    with connect() as client:
        if spec_file is None:
            _show(client, str(run_id), as_json=as_json)
            return
        spec = read_spec(spec_file, assignments) | {"kind": "probe"}
        run = client.submit(spec).id
        code = follow_run(client, run, as_json=as_json)
        if not as_json:
            _show_if_any(client, run, must_be_there=code == Exit.OK)
    sys.exit(code)


def print_probe(report: ProbePayload) -> None:
    """Print the verdicts per environment, the shares of groups with signal, and the advice."""
    ending = "" if report.complete else " (stopped early: later rollouts are missing)"
    out.print(
        f"\n[bold]probe[/bold] at step {report.step}, {report.n_samples_per_prompt} rollouts"
        f" per task, signal in groups of {report.group_size} with 95 % intervals{ending}"
    )
    environments = report.environments
    print_table(table(COLUMNS, [_row(key, env) for key, env in environments.items()]))
    calls = [f"{key} {_num_calls(env)}" for key, env in environments.items() if _num_calls(env)]
    if calls:
        print_text(f"number of calls per p95: {', '.join(calls)}", style="dim")
    for key, env in environments.items():
        if env.verdict != "informative":
            print_text(f"{key}: {env.why}", style="dim")
    out.print("\nshare of groups with signal, by rollouts per prompt")
    columns = ["environment", *(f"{size}>" for size in TABLE_SIZES)]
    print_table(table(columns, [_shares(key, env) for key, env in environments.items()]))
    print_text(f"advice: {report.advice}")


def _show(client: Client, run_id: str, *, as_json: bool) -> None:
    report = client.probe(run_id)
    if as_json:
        print_json(report)
    else:
        print_probe(report)


def _show_if_any(client: Client, run_id: str, *, must_be_there: bool) -> None:
    """Print the probe of an ended run; a failed run may have reported none."""
    try:
        _show(client, run_id, as_json=False)
    except ApiProblem as problem:
        if must_be_there or problem.status != 404:
            raise


def _row(key: str, env: EnvProbePayload) -> list[object]:
    signal, begun = env.signal, env.begun
    style = VERDICT_STYLE.get(env.verdict, "")
    verdict = env.verdict.upper()
    return [
        key,
        env.pass_rate.num_graded,
        _percent(env.pass_rate.value),
        f"{_percent(signal.value)} ({100 * signal.low:.0f}–{100 * signal.high:.0f})",
        env.advised_group_size or "–",
        _percent(begun.num_troubled / begun.num_begun) if begun.num_begun else "–",
        _latency(env.health),
        f"[{style}]{verdict}[/{style}]" if style else verdict,
    ]


def _shares(key: str, env: EnvProbePayload) -> list[object]:
    by_size = {share.group_size: share.value for share in env.shares}
    return [key, *(_share(by_size[size]) for size in TABLE_SIZES)]


def _share(value: float | None) -> str:
    """Return the cell of a group size; groups larger than were rolled out are not estimated."""
    return "unknown" if value is None else _percent(value)


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.0f} %"


def _num_calls(env: EnvProbePayload) -> int:
    return 0 if env.health is None else env.health.call.num


def _latency(health: EnvHealthPayload | None) -> str:
    seconds = None if health is None else health.call.p95_s
    if seconds is None:
        return "–"
    if seconds >= 1.0:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
