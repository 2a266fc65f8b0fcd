"""`experiments.md` and `changelog.md`, made from stored rows and from what people wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from api.admission.experiments.markdown import (
    cell,
    code,
    code_cell,
    inline,
    p_value,
    percent,
    quoted,
    table,
    value_cell,
)
from api.admission.experiments.request import ExperimentText
from api.admission.experiments.results import build_results
from api.tables.studies.experiments import Experiment
from hillclimb.stats.intervals import points_text

Json = dict[str, Any]
GAINED = ("IMPROVED",)
MAX_ARMS = 4
"""Configurations that get a table of their own in a section; the summary lists all."""
RULE = (
    "A threshold on a change is met when the change satisfies it, its 95 % interval (over tasks and"
    " seeds) excludes no change, and the pooled paired comparison agrees; it is missed when the"
    " whole interval violates it. One configuration that meets all confirms the hypothesis; all"
    " that miss one refute it."
)


def experiment_page(session: Session, experiment: Experiment, *, parent: str | None) -> str:
    """Return `experiments.md` of one experiment: everything that is known about it."""
    results = build_results(session, experiment)
    text = ExperimentText.model_validate(experiment.text)
    lines = [f"# {inline(experiment.key)} – {inline(text.title)}", ""]
    lines += _body(results, text, parent)
    lines += [f"*Rule {results['rule']}, paired rule {results['paired_rule']}.* {RULE}", ""]
    return "\n".join(lines)


def changelog_page(
    session: Session, experiments: Sequence[tuple[Experiment, str | None]], *, has_more: bool
) -> str:
    """Return `changelog.md`: a section per experiment, newest first."""
    lines = ["# Changelog", ""]
    for experiment, parent in experiments:
        results = build_results(session, experiment)
        text = ExperimentText.model_validate(experiment.text)
        lines += ["---", "", f"## {inline(experiment.key)} – {inline(text.title)}", ""]
        lines += _body(results, text, parent)
    if not experiments:
        lines += ["No experiment yet.", ""]
    if has_more:
        lines += ["---", "", "Older experiments are left out.", ""]
    return "\n".join(lines)


def _body(results: Json, text: ExperimentText, parent: str | None) -> Iterator[str]:
    if text.hypothesis:
        yield from (f"**Hypothesis:** {inline(text.hypothesis)}", "")
    yield from (f"**Verdict:** **{results['word'].upper()}** – {inline(results['why'])}.", "")
    if parent is not None:
        yield from (f"**Goes on from:** {inline(parent)}", "")
    yield from _changes(results, text)
    yield from _watched(results)
    yield from _configurations(results)
    for arm in [each for each in results["arms"] if each["last"]][:MAX_ARMS]:
        yield from _environments(arm)
    yield from _words(text)
    yield from _runs(results)


def _changes(results: Json, text: ExperimentText) -> Iterator[str]:
    """Yield the differences of the specs, and the rationale of each."""
    arms = [arm for arm in results["arms"] if arm["config_diff"]]
    reasons = {change.key: change.rationale for change in text.changes}
    keys: dict[str, Json] = {}
    for arm in arms:
        for each in arm["config_diff"]:
            entry = keys.setdefault(_dotted(each["pointer"]), {"a": each["a"], "b": {}})
            entry["b"][arm["arm"]] = each["b"]
    rows = [
        [
            code_cell(key),
            value_cell(entry["a"]),
            *(
                value_cell(entry["b"][arm["arm"]]) if arm["arm"] in entry["b"] else "="
                for arm in arms[:MAX_ARMS]
            ),
            cell(reasons.pop(key, "")) or "–",
        ]
        for key, entry in keys.items()
    ]
    blank = ["–"] * (1 + len(arms[:MAX_ARMS]))
    rows += [[code_cell(key), *blank, cell(why)] for key, why in reasons.items()]
    if rows:
        names = [cell(arm["arm"]) for arm in arms[:MAX_ARMS]]
        yield from ("**Changes:**", "")
        columns = ("Change", cell(results["reference"] or "before"), *names, "Rationale")
        yield from table(columns, rows)


def _watched(results: Json) -> Iterator[str]:
    rows = [
        [
            cell(verdict["arm"]),
            code_cell(each["sentence"]),
            _figure(each),
            f"{_number(each, each['low'])} to {_number(each, each['high'])}"
            if each["low"] is not None
            else "–",
            each["reading"].upper(),
        ]
        for verdict in results["verdicts"]
        for each in verdict["readings"]
    ]
    if rows:
        yield from ("**Metrics watched:**", "")
        columns = ("Configuration", "Threshold", "Value>", "95 % interval>", "Reading")
        yield from table(columns, rows)


def _configurations(results: Json) -> Iterator[str]:
    rows = []
    for arm in results["arms"]:
        last = arm["last"]
        if last is None:
            continue
        rate, change = last["all"], arm["against_baseline"]
        spread = (
            f"{percent(rate['least'])} to {percent(rate['most'])}" if rate["num_runs"] > 1 else "–"
        )
        rows.append(
            [
                cell(arm["arm"]),
                str(last["step"]),
                str(rate["num_runs"]),
                str(rate["num_tasks"]),
                f"{percent(rate['value'])} ({_span(rate)})",
                "–" if rate["sd"] is None else f"{100 * rate['sd']:.1f}",
                spread,
                *_change_cells(change["all"] if change else None),
            ]
        )
    if rows:
        yield from (f"**Results** (pass@1, {inline(results['decoding'] or '')}):", "")
        columns = (
            *("Configuration", "Step>", "Seeds>", "Tasks>", "pass@1 (95 %)>", "SD of seeds>"),
            *("Seeds from/to>", "Delta to baseline (95 %)>", "p>", "Status"),
        )
        yield from table(columns, rows)


def _environments(arm: Json) -> Iterator[str]:
    """Yield the table of the seeds' log: each environment before and after, with its status."""
    change = arm["against_baseline"] or arm["own_change"]
    last = arm["last"]
    seeds = last["all"]["num_runs"]
    runs = f"{seeds} seeds" if seeds > 1 else "1 seed"
    if change is None:
        yield from (f"**{inline(arm['arm'])}** (step {last['step']}, {runs}):", "")
        rows = [
            [cell(key), f"{percent(rate['value'])} ({_span(rate)})", str(rate["num_tasks"])]
            for key, rate in {**last["envs"], "**OVERALL**": last["all"]}.items()
        ]
        yield from table(("Environment", "pass@1 (95 %)>", "Tasks>"), rows)
        return
    own = arm["against_baseline"] is None
    before = f"Step {change['before_step']}" if own else "Baseline"
    after = f"Step {change['after_step']}" if own else cell(arm["arm"])
    yield from (f"**{inline(arm['arm'])}** (step {last['step']}, {runs}):", "")
    rows = [_environment_row(cell(key), each) for key, each in change["envs"].items()]
    rows.append(_environment_row("**OVERALL**", change["all"]))
    columns = ("Environment", f"{before}>", f"{after}>", "Delta (95 %)>", "n>", "p>", "Status")
    yield from table(columns, rows)


def _environment_row(name: str, change: Json) -> list[str]:
    paired = change["paired"] or {}
    delta, p, status = _change_cells(change)
    return [
        name,
        percent(paired.get("before")),
        f"**{percent(paired.get('after'))}**" if status in GAINED else percent(paired.get("after")),
        f"**{delta}**" if status in GAINED else delta,
        str(paired.get("n", "–")),
        p,
        status,
    ]


def _change_cells(change: Json | None) -> tuple[str, str, str]:
    if change is None or change["value"] is None:
        return "–", "–", "–"
    paired = change["paired"] or {}
    span = f"{points_text(change['low'])} to {points_text(change['high'])}"
    status = paired.get("verdict", "–").upper()
    return f"{points_text(change['value'])} ({span})", p_value(paired.get("p_adjusted")), status


def _words(text: ExperimentText) -> Iterator[str]:
    if text.issues:
        yield from ("**Issues:**", "")
        rows = [
            [cell(i.title), i.severity.upper(), cell(i.description) or "–"] for i in text.issues
        ]
        yield from table(("Issue", "Severity", "Description"), rows)
    lists = (("What works", text.works), ("What doesn't", text.fails))
    for title, entries in lists:
        if entries:
            yield from (f"**{title}:**", *(f"- {inline(each)}" for each in entries), "")
    if text.next_steps:
        yield from ("**Next steps:**", *(f"- [ ] {inline(each)}" for each in text.next_steps), "")
    if text.commits:
        commits = (f"- {code(c.sha[:10])} {inline(c.summary)}".rstrip() for c in text.commits)
        yield from ("**Commits:**", *commits, "")
    if text.pull_request:
        yield from (f"**PR:** {inline(text.pull_request)}", "")
    if text.remarks:
        yield from ("**Remarks:**", "", *quoted(text.remarks), "")


def _runs(results: Json) -> Iterator[str]:
    rows = [
        [
            cell(arm["arm"]),
            str(run["seed"]),
            code_cell(run["run_id"]) if run["run_id"] else "–",
            run["status"] or str(run["state"]),
            percent(run["pass_at_1"]),
        ]
        for arm in results["arms"]
        for run in arm["runs"]
    ]
    if rows:
        yield from ("**Runs:**", "")
        yield from table(("Configuration", "Seed>", "Run", "Status", "pass@1>"), rows)


def _span(rate: Json) -> str:
    return f"{100 * rate['low']:.1f}–{100 * rate['high']:.1f}"


def _figure(reading: Json) -> str:
    """Return the figure of a watched metric with its unit; a change of a pass rate in points."""
    if reading["value"] is None:
        return "–"
    is_rate = "/pass_at_" in reading["sentence"]
    unit = "" if not is_rate else " points" if reading["is_change"] else " %"
    return _number(reading, reading["value"]) + unit


def _number(reading: Json, value: float) -> str:
    is_rate = "/pass_at_" in reading["sentence"]
    if reading["is_change"]:
        return points_text(value) if is_rate else f"{value:+.3g}"
    return f"{100 * value:.1f}" if is_rate else f"{value:.3g}"


def _dotted(pointer: str) -> str:
    """Return a JSON pointer as a dotted key."""
    parts = (each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:])
    return ".".join(f'"{part}"' if "." in part else part for part in parts)
