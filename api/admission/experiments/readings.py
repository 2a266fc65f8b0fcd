"""Readings of watched metrics and the verdict on the hypothesis, from stored rows alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy.orm import Session

from api.admission.experiments.comparing import Filter, difference, first_of, last_of
from api.admission.experiments.evidence import ArmEvidence, baseline_of, variants_of
from api.admission.experiments.request import ExperimentText, WatchedMetric
from api.results.metrics import MetricFilters, read_metrics
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.experiments.families import family_rate, series_change, series_mean
from hillclimb.stats.verdicts.experiments.watched import (
    ExperimentWord,
    Figure,
    Threshold,
    ThresholdReading,
    configuration_word,
    experiment_word,
    read_threshold,
)

DEFAULT = WatchedMetric(metric="eval/all/pass_at_1", operator=">", bound=0.0, is_change=True)
"""What decides a hypothesis that watches nothing."""
TRAIN = "train"
_PASS_RATE = re.compile(r"^eval/(?P<group>[^/]+)/pass_at_(?P<k>[1-9][0-9]{0,2})$")
_NO_FIGURE = Figure(value=None, interval=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedReading:
    """A watched metric of one arm."""

    watched: WatchedMetric
    reading: ThresholdReading
    figure: Figure
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmVerdict:
    """The verdict on one arm."""

    arm: str
    word: ExperimentWord
    readings: Sequence[WatchedReading]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentVerdict:
    """The verdict on an experiment's hypothesis."""

    word: ExperimentWord
    why: str
    arms: Sequence[ArmVerdict]


def judge(
    session: Session, text: ExperimentText, arms: Sequence[ArmEvidence], decoding: str | None
) -> ExperimentVerdict:
    """Return the verdict by rule `experiment-v1`; see `stats.verdicts.experiments.watched`."""
    judged = variants_of(arms)
    baseline = baseline_of(arms)
    watched = text.watch or (DEFAULT,)
    verdicts = []
    for arm in judged:
        reader = _Reader(
            session=session,
            arm=arm,
            baseline=baseline if arm is not baseline else None,
            decoding=decoding,
            num_arms=len(judged),
        )
        readings = [reader.read(each) for each in watched]
        verdicts.append(
            ArmVerdict(
                arm=arm.arm,
                word=configuration_word([each.reading for each in readings]),
                readings=readings,
            )
        )
    word = experiment_word([each.word for each in verdicts])
    return ExperimentVerdict(word=word, why=_why(word, verdicts), arms=verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    session: Session
    arm: ArmEvidence
    baseline: ArmEvidence | None
    """None where the arm is compared with its own first evaluation."""
    decoding: str | None
    num_arms: int

    def read(self, watched: WatchedMetric) -> WatchedReading:
        pass_rate = _PASS_RATE.match(watched.name)
        if pass_rate:
            figure = self._pass_rate(watched, pass_rate["group"], int(pass_rate["k"]))
        else:
            figure = self._series(watched)
        threshold = Threshold(
            operator=watched.operator, bound=watched.bound, is_change=watched.is_change
        )
        reading, why = read_threshold(threshold, figure)
        if figure.value is None:
            why = self._missing(watched)
        open_runs = _open_runs(self.arm) or (_open_runs(self.baseline) if self.baseline else "")
        if open_runs:
            reading, why = ThresholdReading.UNDECIDED, open_runs
        return WatchedReading(watched=watched, reading=reading, figure=figure, why=why)

    def _pass_rate(self, watched: WatchedMetric, group: str, k: int) -> Figure:
        decoding = watched.decoding or self.decoding
        last = last_of(self.arm, decoding) if decoding else None
        if decoding is None or last is None:
            return _NO_FIGURE
        keep = _filter(group)
        if not watched.is_change:
            rate = family_rate(last.runs(keep), k=k)
            return Figure(value=rate.value, interval=(rate.low, rate.high))
        before = last_of(self.baseline, decoding) if self.baseline else first_of(self.arm, decoding)
        if before is None:
            return _NO_FIGURE
        both = difference(before, last, num_arms=self.num_arms, k=k, keep=keep)
        change, table = both.change, both.table
        word = table.overall.verdict if table else None
        return Figure(value=change.value, interval=(change.low, change.high), word=word)

    def _series(self, watched: WatchedMetric) -> Figure:
        after = self._values(self.arm, watched)
        if not after:
            return _NO_FIGURE
        if not watched.is_change:
            return Figure(value=fmean(after), interval=series_mean(after))
        before = self._values(self.baseline, watched) if self.baseline else []
        if not before:
            return _NO_FIGURE
        return Figure(value=fmean(after) - fmean(before), interval=series_change(before, after))

    def _values(self, arm: ArmEvidence, watched: WatchedMetric) -> list[float]:
        """Return the figure of each run that stored the metric."""
        is_eval = watched.name.startswith("eval/")
        decoding = (watched.decoding or self.decoding) if is_eval else TRAIN
        over = watched.over or ("last" if is_eval else "mean")
        values = []
        for run in arm.runs:
            filters = MetricFilters(names=(_literal(watched.name),))
            for series in read_metrics(self.session, run.id, filters):
                if series["decoding"] == decoding:
                    points = [float(point["value"]) for point in series["points"]]
                    values.append(_summary(points, over))
        return values

    def _missing(self, watched: WatchedMetric) -> str:
        if watched.is_change and self.baseline is None and not _PASS_RATE.match(watched.name):
            return "a change of a series needs a baseline"
        if watched.is_change and self.baseline is None:
            return "there is no baseline, and no earlier evaluation to compare with"
        sides = "the arm or its baseline" if watched.is_change else "the arm"
        return f"no run of {sides} has stored it, or graded enough rollouts"


def _summary(points: Sequence[float], over: str) -> float:
    match over:
        case "last":
            return points[-1]
        case "min":
            return min(points)
        case "max":
            return max(points)
        case _:
            return fmean(points)


def _filter(group: str) -> Filter | None:
    if group == "all":
        return None
    if group in ("seen_templates", "held_out_templates"):
        held_out = group == "held_out_templates"

        def of_templates(count: TaskCount) -> bool:
            return count.held_out_template is held_out

        return of_templates

    def of_env(count: TaskCount) -> bool:
        return count.env_key == group

    return of_env


def _literal(name: str) -> str:
    """Return the pattern that matches exactly this name."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _open_runs(arm: ArmEvidence) -> str:
    if not arm.num_live:
        return ""
    verb = "has" if arm.num_live == 1 else "have"
    return f"{arm.num_live} of {len(arm.members)} runs of {arm.arm!r} {verb} not ended"


def _why(word: ExperimentWord, verdicts: Sequence[ArmVerdict]) -> str:
    if not verdicts:
        return "the experiment has no run"
    chosen = [each for each in verdicts if each.word is word] or verdicts
    reading_of = {
        ExperimentWord.CONFIRMED: ThresholdReading.MET,
        ExperimentWord.REFUTED: ThresholdReading.MISSED,
        ExperimentWord.INCONCLUSIVE: ThresholdReading.UNDECIDED,
    }[word]
    sentences = []
    for verdict in chosen[:3]:
        parts = [
            f"{each.watched.sentence} is {each.reading.value} ({each.why})"
            for each in verdict.readings
            if each.reading is reading_of
        ][:3]
        if parts:
            sentences.append(f"{verdict.arm}: {'; '.join(parts)}")
    if len(chosen) > 3:
        sentences.append(f"and {len(chosen) - 3} more configurations")
    return ". ".join(sentences)
