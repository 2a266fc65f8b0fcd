"""`experiment`: a hypothesis, the runs that test it, its verdict, and its report with figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import VERDICT_STYLE, p_value_text
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.terminal.console import (
    out,
    percent,
    print_json,
    print_page,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.errors import FiguresUnavailable
from hillclimb.client.spec_file import parse_value, read_spec
from hillclimb.protocol.payloads.studies.campaigns import CellState
from hillclimb.protocol.payloads.studies.experiments import (
    ArmResult,
    ExperimentFigures,
    ExperimentPayload,
    ExperimentResults,
    WatchedPayload,
)
from hillclimb.stats.intervals import points_text

ARMS = ("configuration", "step>", "seeds>", "pass@1 %>", "delta>", "p>", "verdict")
RUNS = ("n>", "configuration", "seed>", "state", "run")
WORD_STYLE = {"confirmed": "green", "refuted": "red", "inconclusive": "yellow"}
READING_STYLE = {"met": "green", "missed": "red", "undecided": "yellow"}
STATE_STYLE = {CellState.DONE: "green", CellState.RUNNING: "cyan", CellState.BLOCKED: "red"}
MAX_ARM = 18
KEY = click.argument("key", metavar="KEY")
FILE = click.option(
    "--file",
    "text_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take the parts from this file (YAML or JSON); options replace them.",
)
Function = Callable[..., None]


def text_options(function: Function) -> Function:
    """Add the options for what people write about an experiment."""
    options = (
        click.option("--title", metavar="TEXT", help="One line."),
        click.option("--hypothesis", metavar="TEXT", help="What the runs are to show."),
        click.option("--parent", metavar="KEY", help="The experiment that it goes on from."),
        click.option(
            "--watch",
            multiple=True,
            metavar="THRESHOLD",
            help="`eval/all/pass_at_1 >= +0.05` (a sign: change from the baseline); repeatable.",
        ),
        click.option(
            "--change", "changes", multiple=True, metavar="KEY=WHY", help="Rationale of a change."
        ),
        click.option(
            "--commit", "commits", multiple=True, metavar="SHA[=SUMMARY]", help="A commit."
        ),
        click.option("--pr", "pull_request", metavar="URL", help="The pull request."),
        click.option("--works", multiple=True, metavar="TEXT", help="What works."),
        click.option("--fails", multiple=True, metavar="TEXT", help="What does not."),
        click.option("--next", "next_steps", multiple=True, metavar="TEXT", help="A next step."),
        click.option("--remarks", metavar="TEXT", help="Anything else."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@main.group()
def experiment() -> None:
    """Test a hypothesis with runs; its verdict and report are made from their rows."""


@experiment.command("create")
@KEY
@click.option(
    "--baseline",
    metavar="RUN",
    type=RUN_REFERENCE,
    help="The run that the others are compared with.",
)
@FILE
@text_options
@command
def create(
    *,
    key: str,
    baseline: str | None,
    text_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Create the experiment KEY, a version label such as v0.2.4."""
    body = _text(text_file, options) | {"key": key}
    if baseline is not None:
        body["baseline"] = baseline
    if "title" not in body:
        raise click.UsageError("name what it is about: --title TEXT, or a title in --file")
    with connect() as client:
        _print_experiment(client.experiments.create(body), as_json=as_json)


@experiment.command("edit")
@KEY
@FILE
@text_options
@command
def edit(
    *,
    key: str,
    text_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Replace the named parts of KEY; a repeatable option replaces the whole list."""
    with connect() as client:
        _print_experiment(client.experiments.edit(key, _text(text_file, options)), as_json=as_json)


@experiment.command("list")
@limit_option(20, most=100)
@click.option("--before", metavar="KEY", help="Only older ones than this.")
@command
def list_experiments(*, limit: int, before: str | None, as_json: bool) -> None:
    """List experiments, newest first."""
    with connect() as client:
        page = client.experiments.list(before=before, limit=limit)
    if as_json:
        print_json(page)
        return
    rows = [
        (each.key, each.parent or "–", each.num_runs, _cut(each.title, 40)) for each in page.data
    ]
    empty = "no experiments: hillclimb experiment create KEY --title TEXT creates one"
    print_table(table(("experiment", "parent", "runs>", "title"), rows), empty=empty)


@experiment.command("show")
@KEY
@click.option("--decoding", metavar="NAME", help="Default: the one with the highest temperature.")
@command
def show(*, key: str, decoding: str | None, as_json: bool) -> None:
    """Show KEY with its verdict, its configurations and its runs."""
    with connect() as client:
        payload = client.experiments.get(key)
        results = client.experiments.results(key, decoding=decoding)
    if as_json:
        print_json({**payload.model_dump(mode="json"), "results": results.model_dump(mode="json")})
        return
    _print_head(payload)
    _print_results(results)
    _print_runs(payload)


@experiment.command("add")
@KEY
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--role", type=click.Choice(["baseline", "variant"]), default="variant",
              show_default=True, help="What it is in the comparison.")  # fmt: skip
@click.option("--arm", metavar="LABEL", help="Its configuration: runs of one arm are seeds of it.")
@command
def add(*, key: str, run_id: str, role: str, arm: str | None, as_json: bool) -> None:
    """Add RUN to KEY; repeating it changes nothing."""
    with connect() as client:
        _print_experiment(client.experiments.add(key, run_id, role=role, arm=arm), as_json=as_json)


@experiment.command("remove")
@KEY
@click.argument("run", metavar="RUN")
@command
def remove(*, key: str, run: str, as_json: bool) -> None:
    """Remove RUN (its id, or its number in KEY); the run goes on."""
    with connect() as client:
        _print_experiment(client.experiments.remove(key, run), as_json=as_json)


@experiment.command("sweep")
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--experiment", "key", metavar="KEY", required=True, help="The experiment.")
@SET
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=V1,V2",
    help="Values to try; twice for a grid. The first cell is the baseline if there is none yet.",
)
@click.option("--seeds", metavar="S1,S2", default="0", show_default=True, help="schedule.seed.")
@click.option("--arm", metavar="LABEL", help="Label of the configuration.")
@click.option("--role", type=click.Choice(["baseline", "variant"]), help="Role of the new runs.")
@click.option(
    "--retry", is_flag=True, help="Launch again what failed, was cancelled or was refused."
)
@command
def sweep(  # noqa: PLR0913 (one per option)
    *,
    spec_file: Path,
    key: str,
    assignments: tuple[str, ...],
    over: tuple[str, ...],
    seeds: str,
    arm: str | None,
    role: str | None,
    retry: bool,
    as_json: bool,
) -> None:
    """Launch SPEC under every combination of values and seeds, each once.

    Repeating it adopts the runs that are there.
    """
    body = {
        "base": read_spec(spec_file, assignments),
        "over": [_swept(each) for each in over],
        "seeds": _values(seeds),
        "arm": arm,
        "role": role,
        "retry": retry,
    }
    with connect() as client:
        _print_experiment(client.experiments.sweep(key, body), as_json=as_json)


@experiment.command("report")
@KEY
@click.option(
    "--out",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write experiments.md, changelog.md and figures/ here; default: print the report.",
)
@click.option("--no-figures", is_flag=True, help="Write the pages alone.")
@click.option("--decoding", metavar="NAME", help="Of the figures.")
@command
def report(
    *, key: str, directory: Path | None, no_figures: bool, decoding: str | None, as_json: bool
) -> None:
    """Print the report of KEY as Markdown, or write it with the changelog and its figures."""
    with connect() as client:
        page = client.experiments.report(key)
        if directory is None:
            print_json({"key": key, "report": page}) if as_json else print_page(page)
            return
        changelog = client.experiments.changelog()
        results = client.experiments.results(key, decoding=decoding)
        figures = client.experiments.figures(key, decoding=decoding)
    directory.mkdir(parents=True, exist_ok=True)
    drawn = [] if no_figures else _draw(results, figures, directory / "figures")
    (directory / "changelog.md").write_text(changelog)
    (directory / "experiments.md").write_text(page + _figure_links(drawn))
    written = [directory / "experiments.md", directory / "changelog.md", *drawn]
    written += [path.with_suffix(".png") for path in drawn]
    if as_json:
        print_json({"key": key, "word": results.word, "files": [str(path) for path in written]})
        return
    for path in written:
        print_text(str(path))


def _draw(results: ExperimentResults, figures: ExperimentFigures, directory: Path) -> list[Path]:
    try:
        # Takes half a second to import, and is an extra.
        from hillclimb.cli.studies.figures import draw_figures  # noqa: PLC0415
    except ImportError as error:
        raise FiguresUnavailable(
            "figures need matplotlib: pip install 'hillclimb[figures]', or --no-figures"
        ) from error
    return draw_figures(results, figures, directory)


def _figure_links(drawn: Sequence[Path]) -> str:
    titles = {
        "learning_curves": "Held-out pass@1 by training step; bands are 95 % intervals.",
        "environments": "Held-out pass@1 by environment, with 95 % intervals.",
        "signal": "Share of groups whose rewards differ; the line in the scale is the 25 % border.",
        "dataset_size": "Held-out pass@1 by number of training tasks; dashes are single seeds.",
    }
    lines = [f"![{titles[path.stem]}](figures/{path.name})\n" for path in drawn]
    return "\n## Figures\n\n" + "\n".join(lines) if lines else ""


def _text(text_file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an experiment that the file and the options name."""
    body = read_spec(text_file) if text_file else {}
    own = {name: value for name, value in options.items() if value not in (None, ())}
    for name, part in (("changes", "rationale"), ("commits", "summary")):
        if name in own:
            first = "key" if name == "changes" else "sha"
            pairs = (each.partition("=") for each in own[name])
            own[name] = [{first: key, part: text} for key, _, text in pairs]
    return body | own


def _swept(text: str) -> dict[str, Any]:
    key, separator, values = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f"--over requires KEY=V1,V2, not {text!r}")
    return {"key": key.strip(), "values": _values(values)}


def _values(text: str) -> list[Any]:
    """Return values that commas separate; a list in brackets is read as YAML."""
    if text.lstrip().startswith("["):
        values = parse_value(text)
        return values if isinstance(values, list) else [values]
    return [parse_value(each) for each in text.split(",")]


def _print_experiment(payload: ExperimentPayload, *, as_json: bool) -> None:
    if as_json:
        print_json(payload)
        return
    _print_head(payload)
    _print_runs(payload)


def _print_head(payload: ExperimentPayload) -> None:
    out.print(f"[bold]{escape(payload.key)}[/bold]  {escape(payload.title)}", soft_wrap=True)
    if payload.text.get("hypothesis"):
        print_text(f"hypothesis: {payload.text['hypothesis']}", style="dim")


def _print_runs(payload: ExperimentPayload) -> None:
    if not payload.runs:
        print_text("no runs yet: hillclimb experiment add, or sweep", style="dim")
        return
    rows = [
        (each.number, _cut(each.arm), each.seed, _styled(each.state), each.run_id)
        for each in payload.runs
    ]
    print_table(table(RUNS, rows))
    for each in payload.runs:
        if each.why is not None:
            print_text(f"run {each.number}: {each.why}", style="dim")


def _print_results(results: ExperimentResults) -> None:
    style = WORD_STYLE[results.word]
    word = f"[{style}]{results.word.upper()}[/{style}]"
    out.print(f"{word} ({results.rule}): {escape(results.why)}", soft_wrap=True)
    rows = [_arm_row(each) for each in results.arms if each.last is not None]
    if rows:
        out.print(
            f"\npass@1 ({escape(results.decoding or '')}), 95 % intervals over tasks and seeds"
        )
        print_table(table(ARMS, rows))
    for verdict in results.verdicts:
        out.print(f"\n[bold]{escape(verdict.arm)}[/bold] {verdict.word}")
        for each in verdict.readings:
            out.print(_reading(each), soft_wrap=True)
    out.print()


def _arm_row(arm: ArmResult) -> Sequence[object]:
    if arm.last is None:
        return ()
    rate = arm.last.all
    change = arm.against_baseline.all if arm.against_baseline else None
    compared: tuple[object, ...] = ("", "", "baseline" if arm.role == "baseline" else "")
    if change is not None and change.value is not None and change.paired is not None:
        verdict = change.paired.verdict
        style = VERDICT_STYLE.get(verdict)
        label = f"[{style}]{verdict.upper()}[/{style}]" if style else verdict.upper()
        compared = (points_text(change.value), p_value_text(change.paired.p_adjusted), label)
    share = "–" if rate.value is None else f"{100 * rate.value:.1f}"
    interval = f"{share} ({100 * rate.low:.0f}–{100 * rate.high:.0f})"
    return (_cut(arm.arm), arm.last.step, rate.num_runs, interval, *compared)


def _reading(watched: WatchedPayload) -> str:
    style = READING_STYLE[watched.reading]
    figure = "no figure" if watched.value is None else _figure(watched, watched.value)
    if watched.low is not None and watched.high is not None:
        figure += f" ({_figure(watched, watched.low)} to {_figure(watched, watched.high)})"
    head = f"  [{style}]{watched.reading}[/{style}]  {escape(watched.sentence)}"
    return f"{head}: {figure}; {escape(watched.why)}"


def _figure(watched: WatchedPayload, value: float) -> str:
    if "/pass_at_" not in watched.sentence:
        return f"{value:+.4g}" if watched.is_change else f"{value:.4g}"
    return f"{points_text(value)} points" if watched.is_change else percent(value)


def _styled(state: CellState) -> str:
    style = STATE_STYLE.get(state)
    return f"[{style}]{state}[/{style}]" if style else str(state)


def _cut(text: str, width: int = MAX_ARM) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
