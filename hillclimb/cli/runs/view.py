"""Renders a `RunView`: progress bar, reward curve, pass@1 per environment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hillclimb.cli.terminal.console import duration, percent, styled_status, table
from hillclimb.client.run_view import WARNING_TYPES, RunView
from hillclimb.protocol.events import START_PHASES, start_line

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48
MAX_WARNINGS = 3
"""Newest warnings in the view; `hillclimb show` prints all."""


BEFORE_TRAINING = {
    "queued": "waits for a free slot",
    "provisioning": "an attempt is scheduled; a runner or machine takes it",
    "starting": "the trainer imports its libraries, loads the model and starts its workers",
    "recovering": "the next attempt waits for a free slot",
    "pausing": "the trainer saves a checkpoint and exits",
    "cancelling": "the trainer saves a checkpoint and exits",
    "finalizing": "the trainer has ended; its last events arrive",
}
"""What happens in a status without training, for people who wait."""


def render(view: RunView, now: datetime | None = None) -> RenderableType:
    """Return the complete view of a run; with the time also how long its status lasts."""
    parts: list[RenderableType] = [_headline(view), *_waiting(view, now), _progress(view)]
    if view.loss is not None:
        parts.append(Text(f"loss  {view.loss:.4f}"))
    if view.rewards:
        parts.append(Text(f"reward  {sparkline(view.rewards)}  {view.rewards[-1]:.3f}"))
    if view.envs or view.evals:
        parts.append(_environments(view))
    parts += [
        Text(f"{decoding} @{step} {stop.sentence}", style="dim")
        for (step, decoding), stop in view.early_stops.items()
    ]
    if view.findings:
        parts.append(Text(view.findings))
    parts += [Text(f"warning: {each}", style="yellow") for each in view.warnings[-MAX_WARNINGS:]]
    if view.message:
        parts.append(Text(view.message, style="dim"))
    return Group(*parts)


def _waiting(view: RunView, now: datetime | None) -> list[RenderableType]:
    """Return the line with what a run without training does, and a clock."""
    what = BEFORE_TRAINING.get(view.status)
    if what is None or now is None or view.since is None:
        return []
    since = max(0.0, (now - view.since).total_seconds())
    going_on = [name for name, each in view.startup.items() if each.since is not None]
    if view.status == "starting" and going_on:
        what = ", ".join(START_PHASES.get(name, name) for name in going_on)
    line = Text(f"{duration(since)}  {view.status}: {what}", style="cyan")
    times = start_line(_startup_s(view, now)) if view.status == "starting" else ""
    return [line, Text(times, style="dim")] if times else [line]


def _startup_s(view: RunView, now: datetime | None = None) -> dict[str, float]:
    """Return the seconds of each phase of the start, with the time also of those that go on."""
    return {
        name: each.seconds
        + (0.0 if each.since is None or now is None else (now - each.since).total_seconds())
        for name, each in view.startup.items()
    }


def sparkline(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """Return the last `width` values of [0, 1] as block characters."""
    top = len(BARS) - 1
    return "".join(BARS[round(min(max(value, 0.0), 1.0) * top)] for value in values[-width:])


def lines_of_event(view: RunView, kind: str) -> list[str]:
    """Return the plain log lines of the event that led to `view`; most events have none."""
    if kind == "run.status_changed":
        what = view.message or BEFORE_TRAINING.get(view.status, "")
        return [f"status {view.status}" + (f": {what}" if what else "")]
    if kind == "trainer.starting":
        return [f"starting: {START_PHASES.get(view.begun, view.begun)}"] if view.begun else []
    if kind == "trainer.started":
        return [f"started: {start_line(_startup_s(view))}"] if view.startup else []
    if kind == "step.completed":
        reward = f"{view.rewards[-1]:.3f}" if view.rewards else "–"
        what = f"reward {reward}" if view.loss is None else f"loss {view.loss:.4f}"
        return [f"step {view.step}/{view.total_steps}  {what}  eta {duration(view.eta_s)}"]
    if kind == "eval.completed":
        (step, decoding), rates = list(view.evals.items())[-1]
        n, at_n = view.evals_at_n.get((step, decoding), (1, {}))
        cells = "  ".join(
            f"{env} {percent(rate)}" + (f" (pass@{n} {percent(at_n[env])})" if env in at_n else "")
            for env, rate in sorted(rates.items())
        )
        stop = view.early_stops.get((step, decoding))
        return [f"eval at step {step} ({decoding}): {cells}", *([stop.sentence] if stop else [])]
    if kind in ("probe.completed", "validation.completed"):
        return [view.findings]
    if kind in WARNING_TYPES:
        return [f"warning: {view.warnings[-1]}"]
    return []


def _headline(view: RunView) -> RenderableType:
    attempt = f"  attempt {view.attempt}" if view.attempt > 1 else ""
    return Text.from_markup(
        f"[bold]{view.name}[/bold]  {view.run_id}  {styled_status(view.status)}{attempt}"
    )


def _progress(view: RunView) -> RenderableType:
    eta = "" if view.ended else f"eta {duration(view.eta_s)}"
    phase = "" if view.ended else view.phase
    bar = ProgressBar(total=max(view.total_steps, 1), completed=view.step, width=40)
    row = Table.grid(padding=(0, 2))
    row.add_row(bar, f"step {view.step}/{view.total_steps}", eta, phase)
    return row


def _evals_in_view(view: RunView) -> list[tuple[int, str]]:
    """Return the evaluations in the table: of each decoding the first and the newest."""
    steps: dict[str, list[int]] = {}
    for step, decoding in sorted(view.evals):
        steps.setdefault(decoding, []).append(step)
    ends = {(each[end], decoding) for decoding, each in steps.items() for end in (0, -1)}
    return sorted(ends)


def _environments(view: RunView) -> RenderableType:
    columns = ["environment", "train pass@1>"]
    keys = _evals_in_view(view)
    rates = []
    for key in keys:
        step, decoding = key
        columns.append(f"{decoding} @{step}>")
        rates.append(view.evals[key])
        if key in view.evals_at_n:
            n, at_n = view.evals_at_n[key]
            columns.append(f"pass@{n}>")
            rates.append(at_n)
    names = sorted({*view.envs, *(env for rates in view.evals.values() for env in rates)} - {"all"})
    rows = [
        [name, percent(view.envs.get(name)), *(percent(each.get(name)) for each in rates)]
        for name in names
    ]
    if view.evals:
        rows.append(["all", "", *(percent(each.get("all")) for each in rates)])
    return table(columns, rows)
