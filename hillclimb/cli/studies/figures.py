"""Figures of an experiment as SVG and PNG; the only file that imports matplotlib.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; lines also differ in
marker and dash, bars in hatching, and maps in brightness alone. Intervals are 95 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from hillclimb.protocol.payloads.studies.experiments import (
    ArmFigures,
    ArmRates,
    ArmResult,
    ExperimentFigures,
    ExperimentResults,
    FamilyRate,
)

mpl.use("Agg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++")
MAX_ARMS = len(COLOURS)
"""Arms that a figure shows; the tables have all."""
WIDTH_IN = 6.5
"""The width of a text column of letter paper (inches)."""
DPI = 200
MAX_LABEL = 40
LOW_SIGNAL = 25
"""Percent of groups with signal below which an environment teaches little: the team's border."""
ROW_IN = 0.17
"""Height of a row of a legend (inches)."""
DODGE = 1.03
"""Factor by which arms with equal numbers of training tasks stand apart."""
NARROW, CROWDED = 7, 10
"""Groups of bars above which their names are printed smaller, and slanted."""
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "legend.title_fontsize": 8.0,
    "legend.handlelength": 3.0,
    "svg.hashsalt": "hillclimb",
    "text.parse_math": False,  # a `$` in a label is a character
    "hatch.linewidth": 0.6,
}


def draw_figures(
    results: ExperimentResults, figures: ExperimentFigures, directory: Path
) -> list[Path]:
    """Write each figure that the data suffices for as SVG and PNG; return the paths of the SVGs."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        for name, figure in _figures(results, figures):
            path = directory / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
            figure.savefig(path.with_suffix(".png"), dpi=DPI, bbox_inches="tight")
            plt.close(figure)
            paths.append(path)
    return paths


def _figures(
    results: ExperimentResults, figures: ExperimentFigures
) -> Iterator[tuple[str, Figure]]:
    curves = [arm for arm in figures.arms if arm.curve][:MAX_ARMS]
    if curves:
        yield "learning_curves", _learning_curves(curves, figures.decoding)
    bars = [arm for arm in results.arms if arm.last and arm.last.envs][:MAX_ARMS]
    if bars:
        yield "environments", _environments(bars, results.decoding)
    maps = [arm for arm in figures.arms if arm.signal][:MAX_ARMS]
    if maps:
        yield "signal", _signal(maps)
    sizes = _sizes(results, figures)
    if len({number for number, _ in sizes}) > 1:
        yield "dataset_size", _dataset_size(sizes, results.decoding)


def _learning_curves(arms: Sequence[ArmFigures], decoding: str | None) -> Figure:
    with _axes(2.9) as (figure, axes):
        for number, arm in enumerate(arms):
            steps = [point.step for point in arm.curve]
            colour = COLOURS[number]
            seeds = max(point.num_runs for point in arm.curve)
            tasks = max(point.num_tasks for point in arm.curve)
            axes.fill_between(
                steps,
                [100 * point.low for point in arm.curve],
                [100 * point.high for point in arm.curve],
                color=colour,
                alpha=0.13,
                linewidth=0,
            )
            for ends in ([p.low for p in arm.curve], [p.high for p in arm.curve]):
                axes.plot(
                    steps, [100 * end for end in ends], color=colour, linewidth=0.5, alpha=0.6
                )
            axes.plot(
                steps,
                [100 * point.value for point in arm.curve],
                color=colour,
                marker=MARKERS[number],
                linestyle=DASHES[number],
                markersize=4,
                label=f"{_label(arm.arm)} ({_seeds(seeds)}, {tasks} tasks)",
            )
        axes.set_xlabel("training step")
        axes.set_ylabel(f"held-out pass@1 (%){_decoding(decoding)}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _percent_axis(
            axes, [p.low for a in arms for p in a.curve], [p.high for a in arms for p in a.curve]
        )
        _legend_below(
            axes, len(arms), _marks("bands", [p.num_runs for arm in arms for p in arm.curve])
        )
    return figure


def _environments(arms: Sequence[ArmResult], decoding: str | None) -> Figure:
    """Bars per environment: each arm at its last evaluation; a lone arm before and after."""
    series = _series(arms)
    keys = sorted({key for _, rates in series for key in rates.envs})
    keys = [*keys, "all"]
    width = 0.8 / len(series)
    with _axes(2.7) as (figure, axes):
        for number, (label, rates) in enumerate(series):
            groups = {**rates.envs, "all": rates.all}
            chosen = [(index, groups[key]) for index, key in enumerate(keys) if key in groups]
            drawn = [(index, each) for index, each in chosen if each.value is not None]
            heights = [100 * (each.value or 0.0) for _, each in drawn]
            axes.bar(
                [index - 0.4 + width * (number + 0.5) for index, _ in drawn],
                heights,
                width,
                yerr=_errors([each for _, each in drawn]),
                color=COLOURS[number] if number else "#bbbbbb",
                edgecolor="#333333",
                linewidth=0.5,
                hatch=HATCHES[number],
                error_kw={"elinewidth": 0.9, "capsize": 2.5},
                label=f"{label} (step {rates.step}, {_seeds(rates.all.num_runs)})",
            )
        counts = _num_tasks([rates for _, rates in series], keys)
        _name_groups(axes, keys, counts)
        axes.set_ylabel(f"held-out pass@1 (%){_decoding(decoding)}")
        axes.set_ylim(0, 100)
        axes.grid(visible=False, axis="x")
        _legend_below(
            axes, len(series), f"{_marks('bars', [r.all.num_runs for _, r in series])}; n: tasks"
        )
    return figure


def _signal(arms: Sequence[ArmFigures]) -> Figure:
    """Maps of environments by windows of steps, one beneath the other."""
    keys = sorted({key for arm in arms for key in arm.signal})
    height = len(arms) * (0.55 + 0.28 * len(keys)) + 0.6
    figure, grid = plt.subplots(
        len(arms), 1, figsize=(WIDTH_IN, height), squeeze=False, layout="constrained", sharex=True
    )
    windows = next(iter(arms[0].signal.values()))
    labels = [_window(each.first_step, each.last_step) for each in windows]
    image = None
    palette = mpl.colormaps["cividis"].with_extremes(bad="#eeeeee")
    for axes, arm in zip(grid[:, 0], arms, strict=True):
        values = [
            [
                float("nan") if each.signal_ratio is None else 100 * each.signal_ratio
                for each in arm.signal.get(key, [])
            ]
            or [float("nan")] * len(windows)
            for key in keys
        ]
        image = axes.imshow(values, vmin=0, vmax=100, cmap=palette, aspect="auto")
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                is_known = value == value
                axes.text(
                    column,
                    row,
                    f"{value:.0f}" if is_known else "–",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if is_known and value < 50 else "black",
                    in_layout=False,  # within the map, whose place alone has to be measured
                )
        axes.set_title(f"{_label(arm.arm)} ({_groups(arm)})", fontsize=9, loc="left")
        axes.set_yticks(range(len(keys)), keys)
        axes.set_xticks(range(len(labels)), labels)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    grid[-1, 0].set_xlabel("training steps")
    if image is not None:
        bar = figure.colorbar(image, ax=grid[:, 0].tolist(), shrink=0.9, aspect=25)
        bar.set_label("groups with signal (%)")
        bar.ax.axhline(LOW_SIGNAL, color="#D55E00", linewidth=1.5)
        bar.set_ticks([0, LOW_SIGNAL, 50, 75, 100])
    return figure


def _dataset_size(sizes: Sequence[tuple[int, ArmResult]], decoding: str | None) -> Figure:
    with _axes(2.7) as (figure, axes):
        equal: Counter[int] = Counter()
        for number, (size, arm) in enumerate(sizes):
            if arm.last is None or arm.last.all.value is None:
                continue
            rate = arm.last.all
            place = size * DODGE ** equal[size]
            equal[size] += 1
            axes.errorbar(
                [place],
                [100 * (rate.value or 0.0)],
                yerr=_errors([rate]),
                color=COLOURS[number],
                marker=MARKERS[number],
                markersize=6,
                capsize=3,
                linestyle="none",
                label=f"{_label(arm.arm)} ({_seeds(rate.num_runs)}, {rate.num_tasks} tasks)",
            )
            singles = [100 * run.pass_at_1 for run in arm.runs if run.pass_at_1 is not None]
            axes.plot(
                [place] * len(singles),
                singles,
                color=COLOURS[number],
                marker="_",
                markersize=11,
                linestyle="none",
            )
        axes.set_xscale("log")
        ticks = sorted({size for size, _ in sizes})
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.minorticks_off()
        axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)
        axes.set_xlabel("training tasks (count, logarithmic)")
        axes.set_ylabel(f"held-out pass@1 (%){_decoding(decoding)}")
        rates = [arm.last.all for _, arm in sizes if arm.last]
        runs = [rate.num_runs for rate in rates]
        _percent_axis(axes, [rate.low for rate in rates], [rate.high for rate in rates])
        _legend_below(axes, len(sizes), f"{_marks('bars', runs)}; dashes: single seeds")
    return figure


@contextmanager
def _axes(height_in: float) -> Iterator[tuple[Figure, Axes]]:
    figure, axes = plt.subplots(figsize=(WIDTH_IN, height_in), layout="constrained")
    yield figure, axes


def _series(arms: Sequence[ArmResult]) -> list[tuple[str, ArmRates]]:
    if len(arms) == 1 and arms[0].first is not None and arms[0].last is not None:
        (arm,) = arms
        return [(f"{_label(arm.arm)}, before", arms[0].first), (_label(arm.arm), arms[0].last)]
    return [(_label(arm.arm), arm.last) for arm in arms if arm.last is not None]


def _sizes(results: ExperimentResults, figures: ExperimentFigures) -> list[tuple[int, ArmResult]]:
    numbers = {arm.arm: arm.num_train_tasks for arm in figures.arms}
    known = [(numbers.get(arm.arm), arm) for arm in results.arms if arm.last is not None]
    return [(number, arm) for number, arm in known if number][:MAX_ARMS]


def _num_tasks(rates: Sequence[ArmRates], keys: Sequence[str]) -> dict[str, int]:
    groups = [{**each.envs, "all": each.all} for each in rates]
    return {key: max(g[key].num_tasks for g in groups if key in g) for key in keys}


def _errors(rates: Sequence[FamilyRate]) -> list[list[float]]:
    known = [(each.value or 0.0, each.low, each.high) for each in rates]
    return [
        [100 * max(0.0, value - low) for value, low, _ in known],
        [100 * max(0.0, high - value) for value, _, high in known],
    ]


def _percent_axis(axes: Axes, lows: Sequence[float], highs: Sequence[float]) -> None:
    """Show the intervals with a margin; a rate never leaves 0 to 100 %."""
    low, high = 100 * min(lows), 100 * max(highs)
    margin = max(2.0, 0.06 * (high - low))
    axes.set_ylim(max(0.0, low - margin), min(100.0, high + margin))


def _legend_below(axes: Axes, number: int, title: str) -> None:
    """Put the legend beneath the plot, where it covers nothing, with what the marks mean."""
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    longest = max((len(str(each)) for each in axes.get_legend_handles_labels()[1]), default=0)
    columns = min(number, 3 if longest <= 32 else 2 if longest <= 48 else 1)
    rows = -(-number // max(1, columns)) + 1
    figure.set_figheight(figure.get_figheight() + ROW_IN * rows)
    figure.legend(loc="outside lower center", ncol=max(1, columns), title=title)


def _marks(marks: str, num_runs: Sequence[int]) -> str:
    """Return what the marks of a figure stand for."""
    if max(num_runs, default=1) < 2:
        return f"one seed; {marks}: 95 % intervals (tasks)"
    return f"mean over seeds; {marks}: 95 % intervals (tasks and seeds)"


def _label(arm: str) -> str:
    return arm if len(arm) <= MAX_LABEL else f"{arm[: MAX_LABEL - 1]}…"


def _name_groups(axes: Axes, keys: Sequence[str], counts: Mapping[str, int]) -> None:
    """Name the groups of bars beneath them, with their numbers of tasks."""
    if len(keys) > CROWDED:
        names = [f"{key} (n = {counts[key]})" for key in keys]
        axes.set_xticks(range(len(keys)), names, rotation=40, ha="right", fontsize=7)
        return
    names = [f"{key}\nn = {counts[key]}" for key in keys]
    axes.set_xticks(range(len(keys)), names, fontsize=7 if len(keys) > NARROW else 9)


def _groups(arm: ArmFigures) -> str:
    """Return how many groups the cells of a map stand for."""
    numbers = [each.num_groups for row in arm.signal.values() for each in row if each.num_groups]
    if not numbers:
        return "no group has two grades"
    least, most = min(numbers), max(numbers)
    number = str(least) if least == most else f"{least} to {most}"
    return f"n = {number} groups per cell"


def _seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"


def _decoding(decoding: str | None) -> str:
    return f", {decoding}" if decoding else ""


def _window(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
