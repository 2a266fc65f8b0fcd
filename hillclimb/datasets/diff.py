"""Diff of two versions, in one pass over both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hillclimb.datasets.format.lineage import SplitName, SplitRow
from hillclimb.datasets.format.rows import DatasetError, TaskRow
from hillclimb.spec.section import Section


class TaskName(Section):
    """A task that is in one of two versions."""

    key: str
    env_key: str
    split: SplitName


class TaskChange(Section):
    """A task that says something else than before."""

    key: str
    env_key: str
    fields: tuple[str, ...]
    """Fields of `TaskRow` that differ, in order of name."""


class TaskMove(Section):
    """A task that is in another split than before."""

    key: str
    env_key: str
    before: SplitName
    after: SplitName
    reason: str | None
    """Why it is excluded now; null for the others."""


class EnvDiff(Section):
    """The changes in one environment (counts; an environment counts where a task is now)."""

    env_key: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0


class VersionDiff(Section):
    """Differences between two versions; each list is sorted by key."""

    added: tuple[TaskName, ...]
    removed: tuple[TaskName, ...]
    changed: tuple[TaskChange, ...]
    moved: tuple[TaskMove, ...]
    by_env: tuple[EnvDiff, ...]
    """Environments with a change, in order of name."""
    unchanged: int
    """Tasks that are the same and in the same split."""


def diff_versions(
    before: Iterable[TaskRow],
    before_split: Mapping[str, SplitRow],
    after: Iterable[TaskRow],
    after_split: Mapping[str, SplitRow],
) -> VersionDiff:
    """Compare two versions, whose rows come sorted by key (as they are stored) and are not held.

    Raises:
        DatasetError: rows are not sorted by key.
    """
    added: list[TaskName] = []
    removed: list[TaskName] = []
    changed: list[TaskChange] = []
    moved: list[TaskMove] = []
    unchanged = 0
    for old, new in _paired(before, after):
        if new is None:
            if old is not None:
                removed.append(_name(old, before_split))
        elif old is None:
            added.append(_name(new, after_split))
        else:
            fields = tuple(sorted(name for name, value in new if getattr(old, name) != value))
            if fields:
                changed.append(TaskChange(key=new.key, env_key=new.env_key, fields=fields))
            was, now = before_split[old.key].split, after_split[new.key]
            if was != now.split:
                move = TaskMove(
                    key=new.key, env_key=new.env_key, before=was, after=now.split, reason=now.reason
                )
                moved.append(move)
            unchanged += not fields and was == now.split
    lists: dict[str, Sequence[TaskName | TaskChange | TaskMove]] = {
        "added": added,
        "removed": removed,
        "changed": changed,
        "moved": moved,
    }
    return VersionDiff(
        added=tuple(added),
        removed=tuple(removed),
        changed=tuple(changed),
        moved=tuple(moved),
        by_env=_by_env(lists),
        unchanged=unchanged,
    )


def _by_env(
    lists: Mapping[str, Sequence[TaskName | TaskChange | TaskMove]],
) -> tuple[EnvDiff, ...]:
    counts: dict[str, dict[str, int]] = {}
    for name, each in lists.items():
        for task in each:
            env = counts.setdefault(task.env_key, {})
            env[name] = env.get(name, 0) + 1
    return tuple(EnvDiff(env_key=env_key, **counts[env_key]) for env_key in sorted(counts))


def _name(row: TaskRow, split: Mapping[str, SplitRow]) -> TaskName:
    return TaskName(key=row.key, env_key=row.env_key, split=split[row.key].split)


def _paired(
    before: Iterable[TaskRow], after: Iterable[TaskRow]
) -> Iterator[tuple[TaskRow | None, TaskRow | None]]:
    """Yield the rows of each key side by side."""
    lefts, rights = _in_order(before), _in_order(after)
    left, right = next(lefts, None), next(rights, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.key < right.key):
            yield left, None
            left = next(lefts, None)
        elif left is None or right.key < left.key:
            yield None, right
            right = next(rights, None)
        else:
            yield left, right
            left, right = next(lefts, None), next(rights, None)


def _in_order(rows: Iterable[TaskRow]) -> Iterator[TaskRow]:
    last = ""
    for row in rows:
        if row.key <= last:
            raise DatasetError(f"rows are not sorted by key: {row.key!r} follows {last!r}")
        last = row.key
        yield row
