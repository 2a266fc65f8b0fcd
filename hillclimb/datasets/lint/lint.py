"""Looks for what has made training runs useless before they started (codes: `findings.RULES`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from trainer.contract.datasets.faults import needed_dates, needs_eyes
from trainer.contract.datasets.findings import RULES, Finding, finding
from trainer.contract.datasets.leakage import find_leaks
from trainer.contract.datasets.lineage import SplitRow
from trainer.contract.datasets.power import detectable_paired, detectable_unpaired, paired_size
from trainer.contract.datasets.rows import TaskRow, shown
from trainer.contract.datasets.splits import (
    COPY,
    EVAL_CAP,
    OVERRULED_EVAL,
    OVERRULED_TRAIN,
    TRAIN_CAP,
    TRAINED,
    UNPUBLISHED,
)
from trainer.contract.datasets.table import EnvCounts
from trainer.contract.datasets.tools import GIVEN, ToolCount, find_crowded, find_uncounted
from trainer.contract.sections import EnvKey, Section, Share


class LintOptions(Section):
    """What lint holds a version against."""

    min_env_variables: Share = 0.95
    """Share of an environment's tasks that should have env_variables."""
    detectable_change: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Largest change of a pass rate that an environment's eval set may overlook."""
    lost_share: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.05
    """Share of tasks assumed to go from pass to fail while others gain (for paired comparisons)."""
    before: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Pass rate assumed before a change (for unpaired comparisons)."""
    tool_tokens: dict[EnvKey, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Tokens that each environment's tool descriptions take; of those left out, what a run of the
    project last counted."""
    max_input_length: Annotated[int, Field(ge=1)] | None = None
    """Tokens of the model's input that they must fit in; null leaves them unchecked."""

    @model_validator(mode="after")
    def _tools_are_held_against_something(self) -> Self:
        if self.tool_tokens and self.max_input_length is None:
            raise ValueError(
                "tool_tokens does nothing without max_input_length, the tokens that the model may"
                " read: set it too, or leave tool_tokens out"
            )
        return self


def lint(
    rows: Sequence[TaskRow],
    split: Mapping[str, SplitRow],
    table: Sequence[EnvCounts],
    options: LintOptions,
    made: Iterable[Finding] = (),
    measured: Mapping[str, ToolCount] | None = None,
) -> tuple[Finding, ...]:
    """Return what there is to say, errors first, then by code and environment.

    `made` are the findings about how the version was made (`making`), which join the others.
    `measured` are tools that runs counted: they stand in for those that the options do not give.
    """
    used: dict[str, list[TaskRow]] = {counts.env_key: [] for counts in table}
    for row in rows:
        if split[row.key].split != "excluded":
            used[row.env_key].append(row)
    found = [*made, *_tools(options, used, measured or {})]
    for counts in table:
        tasks = used[counts.env_key]
        found += find_leaks(counts.env_key, tasks, split)
        found += _variables(counts.env_key, tasks, options)
        found += _dates(counts.env_key, tasks)
        found += _sizes(counts, options)
        found += _unusable(counts.env_key, tasks)
    found += _left_out(rows, split)
    found += _emptied(rows, split, table)
    found += _overall(table, options)
    severities = list(dict.fromkeys(rule.severity for rule in RULES.values()))
    return tuple(
        sorted(found, key=lambda f: (severities.index(f.severity), f.code, f.env_key or ""))
    )


def _variables(env_key: str, rows: Sequence[TaskRow], options: LintOptions) -> Iterator[Finding]:
    having = [row for row in rows if row.env_variables]
    if len(having) < options.min_env_variables * len(rows):
        bare = [row.key for row in rows if not row.env_variables]
        message = f"{len(bare)} of {len(rows)} tasks have no env_variables"
        yield finding("env_variables_missing", env_key, len(bare), message, bare)
    names = Counter(name for row in having for name in row.env_variables)
    for name, count in sorted(names.items()):
        if len(having) / 2.0 < count < len(having):
            without = [row.key for row in having if name not in row.env_variables]
            message = (
                f"{shown(name)} is missing in {len(without)} of {len(having)} tasks with variables"
            )
            yield finding("env_variable_uneven", env_key, len(without), message, without)


def _dates(env_key: str, rows: Sequence[TaskRow]) -> Iterator[Finding]:
    sure, unsure = [], []
    for row in rows:
        words = needed_dates(row)
        if words.sure:
            sure.append(f"{row.key}: {', '.join(words.sure[:3])}")
        elif words.unsure:
            unsure.append(f"{row.key}: {', '.join(words.unsure[:3])}")
    if sure:
        message = f"{len(sure)} tasks speak of a date that needs CURRENT_DATE and do not have it"
        yield finding("current_date_missing", env_key, len(sure), message, sure)
    if unsure:
        message = f"{len(unsure)} tasks may speak of a date that needs CURRENT_DATE"
        yield finding("current_date_unsure", env_key, len(unsure), message, unsure)


def _sizes(counts: EnvCounts, options: LintOptions) -> Iterator[Finding]:
    if counts.train and not counts.eval:
        message = f"{counts.train} training tasks and no eval task"
        yield finding("no_eval", counts.env_key, counts.train, message)
    if not counts.unique_eval:
        return
    smallest = detectable_paired(counts.unique_eval, lost=options.lost_share)
    message = _power(counts.unique_eval, options)
    if smallest is None or smallest > options.detectable_change:
        needed = paired_size(options.detectable_change, options.lost_share)
        message += f"; {100 * options.detectable_change:.0f} points take {_up(needed)} tasks"
        yield finding("eval_too_small", counts.env_key, counts.unique_eval, message)
    else:
        yield finding("detectable_change", counts.env_key, counts.unique_eval, message)


def _overall(table: Sequence[EnvCounts], options: LintOptions) -> Iterator[Finding]:
    num_tasks = sum(counts.unique_eval for counts in table)
    if num_tasks and len(table) > 1:
        yield finding("detectable_change", None, num_tasks, _power(num_tasks, options))


def _power(num_tasks: int, options: LintOptions) -> str:
    """Say what an eval set shows, at 80 % power and p < 0.05."""
    paired = detectable_paired(num_tasks, lost=options.lost_share)
    unpaired = detectable_unpaired(num_tasks, before=options.before)
    return (
        f"{num_tasks} different eval tasks show {_points(paired)} on the same tasks before and"
        f" after ({100 * options.lost_share:.0f} % of them lost), and {_points(unpaired)} from"
        f" {100 * options.before:.0f} % on different tasks"
    )


def _points(change: float | None) -> str:
    return "no change at all" if change is None else f"a change of {100 * change:.0f} points"


def _up(size: float) -> int:
    return -int(-size // 1)


def _tools(
    options: LintOptions,
    used: Mapping[str, Sequence[TaskRow]],
    measured: Mapping[str, ToolCount],
) -> Iterator[Finding]:
    if options.max_input_length is None:
        return
    idle = sorted(env_key for env_key in options.tool_tokens if not used.get(env_key))
    if idle:
        message = f"lint.tool_tokens names {', '.join(idle[:5])}, whose tasks are not used here"
        yield finding("tools_unused", None, len(idle), message, idle)
    given = {
        env_key: ToolCount(tokens=tokens, source=GIVEN)
        for env_key, tokens in options.tool_tokens.items()
    }
    num_tasks = {env_key: len(rows) for env_key, rows in used.items()}
    counted = {**measured, **given}
    yield from find_crowded(counted, options.max_input_length, num_tasks)
    yield from find_uncounted(counted, options.max_input_length, num_tasks)


def _unusable(env_key: str, rows: Sequence[TaskRow]) -> Iterator[Finding]:
    images = [row.key for row in rows if needs_eyes(row)]
    if images:
        message = f"{len(images)} tasks are played by looking at screens"
        yield finding("modality_not_trainable", env_key, len(images), message, images)
    without = [row.key for row in rows if row.verifier_code is None]
    if 0 < len(without) < len(rows):
        message = f"{len(without)} of {len(rows)} tasks carry no verifier_code"
        yield finding("verifier_missing", env_key, len(without), message, without)


_CODE_OF_REASON = {
    EVAL_CAP: "capped",
    TRAIN_CAP: "capped",
    TRAINED: "kept_from_lineage",
    COPY: "kept_from_lineage",
    OVERRULED_EVAL: "published_overruled",
    OVERRULED_TRAIN: "published_overruled",
    UNPUBLISHED: "unpublished",
}


def _emptied(
    rows: Iterable[TaskRow], split: Mapping[str, SplitRow], table: Sequence[EnvCounts]
) -> Iterator[Finding]:
    """Find environments of which caps excluded every training task."""
    cut = Counter(row.env_key for row in rows if split[row.key].reason == TRAIN_CAP)
    for counts in table:
        if not counts.train and (number := cut[counts.env_key]):
            message = f"the caps exclude all {number} training tasks"
            yield finding("train_emptied", counts.env_key, number, message)


def _left_out(rows: Iterable[TaskRow], split: Mapping[str, SplitRow]) -> Iterator[Finding]:
    """Say what the split policy excluded: a set that shrinks must not do so silently."""
    keys: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reason = split[row.key].reason
        if reason in _CODE_OF_REASON:
            keys.setdefault((row.env_key, reason), []).append(row.key)
    for (env_key, reason), named in keys.items():
        message = f"{len(named)} tasks are excluded: {reason.removeprefix('split: ')}"
        yield finding(_CODE_OF_REASON[reason], env_key, len(named), message, named)
