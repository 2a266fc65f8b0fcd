"""Counts of a version per environment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import TaskRow
from hillclimb.spec.section import Section

CURRENT_DATE = "CURRENT_DATE"
_MINIFLEET_KEY = re.compile(r"([a-z0-9-]+)/(?:train|eval)/[^/]+/[0-9]{6}")


class EnvCounts(Section):
    """The tasks of one environment in one version (counts)."""

    env_key: str
    train: int
    eval: int
    excluded: int
    total: int
    unique_eval: int
    """Eval tasks that ask different things."""
    with_env_variables: int
    with_current_date: int
    with_verifier: int
    difficulties: dict[str, int]
    """Tasks by difficulty ("1" to "3"), and those without one under "none"."""
    modalities: dict[str, int]
    """Tasks for training and evaluation by modality: what is excluded needs no eyes."""
    by_modality: dict[str, dict[str, int]]
    """`train`, `eval` and `unique_eval` of the tasks of each modality."""
    with_minifleet_key: int
    """Tasks for training and evaluation that minifleet may have, by the form of their key."""


def count_by_env(rows: Iterable[TaskRow], split: Mapping[str, SplitRow]) -> tuple[EnvCounts, ...]:
    """Count a version's tasks per environment, in order of name; `split` is by key."""
    groups: dict[str, list[TaskRow]] = {}
    for row in rows:
        groups.setdefault(row.env_key, []).append(row)
    return tuple(_count(env_key, groups[env_key], split) for env_key in sorted(groups))


def is_minifleet_key(row: TaskRow) -> bool:
    """Tell whether a task's key has the form ENV/SPLIT/TEMPLATE/NUMBER, with its environment."""
    match = _MINIFLEET_KEY.fullmatch(row.key)
    return match is not None and match[1] == row.env_key


def _count(env_key: str, rows: list[TaskRow], split: Mapping[str, SplitRow]) -> EnvCounts:
    places = Counter(split[row.key].split for row in rows)
    used = [row for row in rows if split[row.key].split != "excluded"]
    difficulties = Counter(
        "none" if row.difficulty is None else str(row.difficulty) for row in rows
    )
    return EnvCounts(
        env_key=env_key,
        train=places["train"],
        eval=places["eval"],
        excluded=places["excluded"],
        total=len(rows),
        unique_eval=len(
            {split[row.key].fingerprint for row in rows if split[row.key].split == "eval"}
        ),
        with_env_variables=sum(bool(row.env_variables) for row in rows),
        with_current_date=sum(CURRENT_DATE in row.env_variables for row in rows),
        with_verifier=sum(row.verifier_code is not None for row in rows),
        difficulties=dict(sorted(difficulties.items())),
        modalities=dict(sorted(Counter(row.task_modality for row in used).items())),
        by_modality=_count_modalities(used, split),
        with_minifleet_key=sum(is_minifleet_key(row) for row in used),
    )


def _count_modalities(
    rows: Iterable[TaskRow], split: Mapping[str, SplitRow]
) -> dict[str, dict[str, int]]:
    by_modality: dict[str, list[SplitRow]] = {}
    for row in rows:
        by_modality.setdefault(row.task_modality, []).append(split[row.key])
    return {
        modality: {
            "train": sum(place.split == "train" for place in places),
            "eval": sum(place.split == "eval" for place in places),
            "unique_eval": len({each.fingerprint for each in places if each.split == "eval"}),
        }
        for modality, places in sorted(by_modality.items())
    }
