"""Findings about the creation of a version, which its stored rows no longer show.

They are stored with the version: a later lint with other options repeats them unchanged.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.filter.filters import Filtered, FilterOptions
from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import printable
from hillclimb.datasets.format.table import EnvCounts
from hillclimb.datasets.lint.findings import Finding, finding
from hillclimb.datasets.split.policies import PRESETS, Md5ThresholdPolicy, SplitPolicy

CODES = frozenset(
    {
        "duplicate_key",
        "duplicate_key_differs",
        "copies",
        "exclusion_unused",
        "published_missing",
        "option_names_nothing",
        "eval_below_minimum",
        "eval_barred",
    }
)
"""The findings of this module."""
_MAX_REASON = 60
"""Characters of an exclusion's reason that an example shows."""


def find_making(
    filtered: Filtered, filters: FilterOptions, policy: SplitPolicy, unused: Iterable[Exclusion]
) -> Iterator[Finding]:
    """Find faults of a version's file, filters and exclusions, apart from its split."""
    yield from _repeats(filtered)
    yield from _idle_names(filtered, filters, policy)
    yield from _idle_exclusions(unused)
    yield from _unpublished(filtered, policy)


def find_cut_below_minimum(
    policy: SplitPolicy,
    table: Sequence[EnvCounts],
    resplit: Callable[[SplitPolicy], Sequence[SplitRow]],
    env_of: Mapping[str, str],
) -> Iterator[Finding]:
    """Find environments that `max_eval_total` leaves fewer eval tasks than their minimum.

    Args:
        policy: the policy of the version.
        table: its counts by environment.
        resplit: splits the same tasks by another policy.
        env_of: environment of each task, by key.
    """
    if policy.policy == "published" or policy.max_eval_total is None:
        return
    few = [counts for counts in table if counts.eval < policy.min_eval_per_env]
    if not few:
        return
    uncapped = {"max_eval_total": None, "max_env_train_share": None}
    uncut = resplit(policy.model_copy(update=uncapped))
    before = Counter(env_of[row.key] for row in uncut if row.split == "eval")
    for counts in few:
        if before[counts.env_key] > counts.eval:
            message = (
                f"max_eval_total {policy.max_eval_total} leaves {counts.eval} of"
                f" {before[counts.env_key]} eval tasks, fewer than min_eval_per_env"
                f" {policy.min_eval_per_env}"
            )
            yield finding("eval_below_minimum", counts.env_key, counts.eval, message)


def find_barred(
    policy: SplitPolicy,
    table: Sequence[EnvCounts],
    resplit: Callable[[SplitPolicy], Sequence[SplitRow]],
    split: Mapping[str, SplitRow],
    env_of: Mapping[str, str],
) -> Iterator[Finding]:
    """Find environments that would have more eval tasks if no earlier version had trained on them.

    Other findings cover published splits and their exclusions.

    Args:
        policy: the policy of the version.
        table: its counts by environment.
        resplit: splits the same tasks by another policy.
        split: its split rows by key.
        env_of: environment of each task, by key.
    """
    if policy.policy == "published" or policy.trained_may_become_eval:
        return
    free = resplit(policy.model_copy(update={"trained_may_become_eval": True}))
    could: Counter[str] = Counter()
    for row in free:
        if row.split == "eval" and split[row.key].split != "excluded":
            could[env_of[row.key]] += 1
    for counts in table:
        number = could[counts.env_key] - counts.eval
        if number > 0:
            message = (
                f"{number} of {could[counts.env_key]} tasks that the policy asks for are training"
                f" tasks, because an earlier version trained on them: {counts.eval} eval"
                f" task{'' if counts.eval == 1 else 's'}"
            )
            yield finding("eval_barred", counts.env_key, number, message)


def _repeats(filtered: Filtered) -> Iterator[Finding]:
    rows: Counter[str] = Counter()
    keys: dict[str, list[str]] = {}
    differing: dict[str, list[str]] = {}
    for each in filtered.duplicates:
        rows[each.env_key] += each.count
        keys.setdefault(each.env_key, []).append(each.key)
        if each.differing:
            differing.setdefault(each.env_key, []).append(each.key)
    for env_key, named in keys.items():
        message = f"{rows[env_key]} rows repeat {len(named)} keys of earlier rows"
        yield finding("duplicate_key", env_key, rows[env_key], message, named)
    for env_key, named in differing.items():
        message = f"{len(named)} keys name rows that say different things"
        yield finding("duplicate_key_differs", env_key, len(named), message, named)
    groups: dict[str, list[str]] = {}
    for copies in filtered.copies:
        groups.setdefault(copies.env_key, []).append(" = ".join(copies.keys[:3]))
    for env_key, same in groups.items():
        message = f"{len(same)} questions are asked under more than one key"
        yield finding("copies", env_key, len(same), message, same)


def _idle_names(
    filtered: Filtered, filters: FilterOptions, policy: SplitPolicy
) -> Iterator[Finding]:
    """Find names in the filters and the split policy that no row of the file has."""
    envs = {env_key for env_key, _, _ in filtered.seen}
    idle = [key for key in filters.env_keys or () if key not in envs]
    yield from _idle("filters.env_keys", idle, envs)
    difficulties = {difficulty for _, _, difficulty in filtered.seen}
    idle = [str(each) for each in filters.difficulty or () if each not in difficulties]
    yield from _idle("filters.difficulty", idle, ())
    if policy.policy != "published":
        places = {(modality, env_key) for env_key, modality, _ in filtered.seen}
        for modality, named in sorted(policy.held_out_envs.items()):
            if isinstance(policy, Md5ThresholdPolicy) and named == _preset(policy).get(modality):
                continue  # set by the preset, not by the user
            there = {env_key for place, env_key in places if place == modality}
            idle = [key for key in named if key not in there]
            yield from _idle(f"split.held_out_envs.{modality}", idle, there)


def _idle_exclusions(unused: Iterable[Exclusion]) -> Iterator[Finding]:
    idle = tuple(unused)
    if idle:
        some = [f"{each.scope} {each.key} ({each.reason[:_MAX_REASON]})" for each in idle[:5]]
        message = (
            f"{len(idle)} exclusions name no task and no environment of this version"
            if len(idle) > 1
            else f"no {idle[0].scope} {idle[0].key!r} to exclude ({idle[0].reason[:_MAX_REASON]})"
        )
        yield finding("exclusion_unused", None, len(idle), message, some)


def _unpublished(filtered: Filtered, policy: SplitPolicy) -> Iterator[Finding]:
    if policy.policy != "published":
        return
    missing = sorted(policy.splits.keys() - filtered.prints.keys())
    if missing:
        message = (
            f"the published split names {len(policy.splits)} tasks, and {len(missing)} of them are"
            " not among the tasks taken"
        )
        some = [f"{printable(key)} ({policy.splits[key]})" for key in missing[:5]]
        yield finding("published_missing", None, len(missing), message, some)


def _idle(option: str, names: Sequence[str], there: Iterable[str]) -> Iterator[Finding]:
    if names:
        candidates = sorted(there)
        some = [_with_hint(name, candidates) for name in names]
        message = f"{option} names {', '.join(some[:5])}, and no row of the file has that"
        yield finding("option_names_nothing", None, len(names), message, some)


def _with_hint(name: str, candidates: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _preset(policy: Md5ThresholdPolicy) -> Mapping[str, object]:
    """Return the environments that the policy's preset holds out, by modality."""
    held_out = PRESETS.get(policy.preset or "", {}).get("held_out_envs", {})
    return held_out if isinstance(held_out, dict) else {}
