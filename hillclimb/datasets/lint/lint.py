"""Lint of a version: finds faults that make training runs useless (codes: `findings.RULES`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import TaskRow, printable
from hillclimb.datasets.format.table import EnvCounts
from hillclimb.datasets.lint.faults import needed_dates, needs_eyes
from hillclimb.datasets.lint.findings import RULES, Finding, finding
from hillclimb.datasets.lint.leakage import find_leaks
from hillclimb.datasets.lint.tool_tokens import EXPLICIT, ToolCount, find_crowded, find_uncounted
from hillclimb.datasets.split.splits import (
    COPY,
    EVAL_CAP,
    OVERRULED_EVAL,
    OVERRULED_TRAIN,
    TRAIN_CAP,
    TRAINED,
    UNPUBLISHED,
)
from hillclimb.spec.section import WHOLE, EnvKey, Section, Share
from hillclimb.stats.power import detectable_paired, detectable_unpaired, paired_size

_TOOLS_NEED_A_LIMIT: JsonDict = {
    "if": {"required": ["tool_tokens"], "properties": {"tool_tokens": {"minProperties": 1}}},
    "then": {
        "required": ["max_input_length"],
        "properties": {"max_input_length": {"type": "integer"}},
    },
}


class LintOptions(Section):
    """Thresholds and assumptions of lint."""

    model_config = ConfigDict(json_schema_extra=_TOOLS_NEED_A_LIMIT)

    min_env_variables: Share = 0.95
    """Share of an environment's tasks that should have env_variables."""
    detectable_change: Annotated[float, Field(ge=0.001, le=1.0)] = 0.25
    """Largest change of a pass rate that an environment's eval set may overlook."""
    lost_share: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.05
    """Share of tasks assumed to go from pass to fail while others gain (for paired comparisons)."""
    before: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Pass rate assumed before a change (for unpaired comparisons)."""
    tool_tokens: dict[EnvKey, Annotated[int, Field(ge=0, strict=True), WHOLE]] = Field(
        default_factory=dict
    )
    """Tokens of each environment's tool descriptions; the default is the count of the project's
    newest run."""
    max_input_length: Annotated[int, Field(ge=1)] | None = None
    """Longest input of the model, which they must fit (tokens); null: unchecked."""

    @model_validator(mode="after")
    def _tools_have_a_limit(self) -> Self:
        if self.tool_tokens and self.max_input_length is None:
            raise ValueError(
                "tool_tokens has no effect without max_input_length, the model's longest input: set"
                " it too, or leave tool_tokens out"
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
    """Return the findings, errors first, then by code and environment.

    `made` are the findings about the version's creation (`build_version`), which join the others.
    `measured` are token counts from runs, for environments without one in the options.
    """
    used: dict[str, list[TaskRow]] = {counts.env_key: [] for counts in table}
    for row in rows:
        if split[row.key].split != "excluded":
            used[row.env_key].append(row)
    findings = [*made, *_tools(options, used, measured or {})]
    for counts in table:
        tasks = used[counts.env_key]
        findings += find_leaks(counts.env_key, tasks, split)
        findings += _variables(counts.env_key, tasks, options)
        findings += _dates(counts.env_key, tasks)
        findings += _sizes(counts, options)
        findings += _unusable(counts.env_key, tasks)
    findings += _left_out(rows, split)
    findings += _emptied(rows, split, table)
    findings += _overall(table, options)
    severities = list(dict.fromkeys(rule.severity for rule in RULES.values()))
    return tuple(
        sorted(findings, key=lambda f: (severities.index(f.severity), f.code, f.env_key or ""))
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
            counts = f"{len(without)} of {len(having)}"
            message = f"{printable(name)} is missing in {counts} tasks with variables"
            yield finding("env_variable_uneven", env_key, len(without), message, without)


def _dates(env_key: str, rows: Sequence[TaskRow]) -> Iterator[Finding]:
    partial = [f"{row.key}: {', '.join(words[:3])}" for row in rows if (words := needed_dates(row))]
    if partial:
        message = f"{len(partial)} tasks have a date that needs CURRENT_DATE and do not have it"
        yield finding("current_date_missing", env_key, len(partial), message, partial)


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
    """Return the smallest changes that an eval set can show, at 80 % power and p < 0.05."""
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
    overrides = {
        env_key: ToolCount(tokens=tokens, source=EXPLICIT)
        for env_key, tokens in options.tool_tokens.items()
    }
    num_tasks = {env_key: len(rows) for env_key, rows in used.items()}
    counted = {**measured, **overrides}
    yield from find_crowded(counted, options.max_input_length, num_tasks)
    yield from find_uncounted(counted, options.max_input_length, num_tasks)


def _unusable(env_key: str, rows: Sequence[TaskRow]) -> Iterator[Finding]:
    images = [row.key for row in rows if needs_eyes(row)]
    if images:
        message = f"{len(images)} tasks need screenshots"
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
    """Find tasks excluded by the split policy: a set must not shrink silently."""
    keys: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reason = split[row.key].reason
        if reason in _CODE_OF_REASON:
            keys.setdefault((row.env_key, reason), []).append(row.key)
    for (env_key, reason), named in keys.items():
        message = f"{len(named)} tasks are excluded: {reason.removeprefix('split: ')}"
        yield finding(_CODE_OF_REASON[reason], env_key, len(named), message, named)
