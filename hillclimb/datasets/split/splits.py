"""Parts the tasks of a version into train, eval and excluded. Each task is in exactly one of them.

The result depends on the keys, environments and modalities of the tasks, on what earlier versions
did with them and on the policy; never on the order of the rows, the machine or the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from hillclimb.datasets.format.lineage import Lineage, Past, SplitName, SplitRow
from hillclimb.datasets.format.ranks import md5_share, salted_rank
from hillclimb.datasets.format.rows import DatasetError, FileRow, PromptlessRow, TaskRow
from hillclimb.datasets.split.caps import largest_cap, take_turns
from hillclimb.datasets.split.historic import historic_exclusions
from hillclimb.datasets.split.policies import (
    HeldOut,
    Md5ThresholdPolicy,
    PublishedPolicy,
    RankPolicy,
)
from hillclimb.datasets.split.strata import StratumPool, strata_of

EVAL_CAP = "split: above the most eval tasks that the policy allows"
TRAIN_CAP = "split: above the most training tasks that the policy allows"
TRAINED = "split: meant for eval, but an earlier version trained on it"
COPY = "split: asks the same as an eval task of an earlier version"
OVERRULED_EVAL = "split: published for eval, but an earlier version trained on it"
OVERRULED_TRAIN = "split: published for training, but an earlier version evaluated on it"
UNPUBLISHED = "split: the published split does not name it"


@dataclass(slots=True)
class _Draft:
    """A split in the making."""

    evals: dict[str, list[str]] = field(default_factory=dict)
    """Keys by environment."""
    trains: dict[str, list[str]] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    """Reason by key."""

    def exclude(self, keys: Iterable[str], reason: str) -> None:
        self.excluded.update(dict.fromkeys(keys, reason))


def make_split(
    rows: Sequence[TaskRow],
    prints: Mapping[str, str],
    policy: RankPolicy | Md5ThresholdPolicy | PublishedPolicy,
    *,
    excluded: Mapping[str, str],
    lineage: Lineage,
    promptless: Sequence[PromptlessRow] = (),
) -> tuple[SplitRow, ...]:
    """Return where each task belongs, sorted by key.

    Args:
        rows: tasks with distinct keys.
        prints: fingerprint of each, by key.
        policy: how to part them.
        excluded: reasons of those that are left out before the policy sees them, by key.
        lineage: what earlier versions did.
        promptless: dropped rows that the historic script counts as tasks of their environment.

    Raises:
        DatasetError: no split of these tasks follows the policy.
    """
    if isinstance(policy, Md5ThresholdPolicy) and policy.historic_exclusions:
        excluded = {**historic_exclusions(rows), **excluded}
        promptless = [row for row in promptless if not historic_exclusions([row])]
    past = lineage.past(
        {row.key: prints[row.key] for row in rows if row.key not in excluded},
        trained_may_become_eval=policy.trained_may_become_eval,
    )
    neither = {*excluded, *past.copies, *past.conflicting}
    tasks = [row for row in rows if row.key not in neither]
    match policy:
        case RankPolicy():
            draft = _by_rank(tasks, policy, past)
        case Md5ThresholdPolicy():
            uncounted = [row for row in promptless if row.key not in prints]
            draft = _by_md5(tasks, policy, past, uncounted)
        case PublishedPolicy():
            draft = _as_published(tasks, policy, past)
    draft.exclude(past.copies, COPY)
    draft.excluded.update((key, _reason_if_conflicting(key, policy)) for key in past.conflicting)
    draft.excluded.update(excluded)
    places: dict[str, SplitName] = dict.fromkeys(draft.excluded, "excluded")
    places.update((key, "eval") for keys in draft.evals.values() for key in keys)
    places.update((key, "train") for keys in draft.trains.values() for key in keys)
    return tuple(
        SplitRow(
            key=key, split=places[key], reason=draft.excluded.get(key), fingerprint=prints[key]
        )
        for key in sorted(row.key for row in rows)
    )


def _reason_if_conflicting(
    key: str, policy: RankPolicy | Md5ThresholdPolicy | PublishedPolicy
) -> str:
    if not isinstance(policy, PublishedPolicy):
        return TRAINED
    place = policy.splits.get(key)
    return UNPUBLISHED if place is None else OVERRULED_EVAL if place == "eval" else OVERRULED_TRAIN


def _by_rank(tasks: Sequence[TaskRow], policy: RankPolicy, past: Past) -> _Draft:
    """Split each environment by salted rank, with exact sizes (`_target`)."""
    draft = _Draft()
    barred = frozenset() if policy.trained_may_become_eval else past.trained
    kinds = strata_of(tasks, policy.stratify_by)
    pools: dict[str, StratumPool] = {}
    withheld_by: dict[str, list[str]] = {}
    old_evals_by: dict[str, list[str]] = {}
    spare: set[str] = set()
    for env_key, (held_out, shared) in _by_env(tasks, policy.held_out_envs).items():
        ranks = {key: salted_rank(key, policy.salt) for key in (*held_out, *shared)}
        draft.exclude((key for key in held_out if key in barred), TRAINED)
        withheld_keys = sorted(
            (key for key in held_out if key not in barred), key=ranks.__getitem__
        )
        ordered = sorted(shared, key=ranks.__getitem__)
        old_evals = [key for key in ordered if key in past.evaluated]
        free = [key for key in ordered if key not in past.evaluated and key not in barred]
        most = len(old_evals) if policy.max_eval_per_env is None else policy.max_eval_per_env
        draft.exclude(old_evals[most:], EVAL_CAP)
        withheld_by[env_key], old_evals_by[env_key] = withheld_keys, old_evals[:most]
        pools[env_key] = StratumPool(tasks=ordered, free=free, kinds=kinds)
    num_withheld = sum(map(len, withheld_by.values()))
    numbers = _num_drawn(pools, old_evals_by, num_withheld, policy)
    for env_key, old_evals in old_evals_by.items():
        new_evals = pools[env_key].draw(numbers[env_key], beside=old_evals)
        spare.update(new_evals)
        draft.evals[env_key] = old_evals + withheld_by[env_key] + new_evals
    for env_key, cut in _cut_to_total(draft, past, policy.max_eval_total).items():
        draft.exclude((key for key in cut if key not in spare), EVAL_CAP)
        if any(key in spare for key in cut):
            stay = [key for key in draft.evals[env_key] if key not in spare]
            parted = set(pools[env_key].tasks)
            old_evals = [key for key in stay if key in parted]
            number = len(draft.evals[env_key]) - len(stay)
            draft.evals[env_key] = stay + pools[env_key].draw(number, beside=old_evals)
    for env_key, pool in pools.items():
        used = {*draft.evals[env_key], *draft.excluded}
        draft.trains[env_key] = [key for key in pool.tasks if key not in used]
    _cap_training(draft, policy)
    return draft


def _num_drawn(
    pools: Mapping[str, StratumPool],
    old_evals: Mapping[str, Sequence[str]],
    num_held_out: int,
    policy: RankPolicy,
) -> dict[str, int]:
    """Return the number of new eval tasks per environment, beside those of earlier versions."""
    targets = {env: _target(len(pool.tasks), policy) for env, pool in pools.items()}
    numbers = {
        env: max(0, min(targets[env] - len(old_evals[env]), len(pool.free)))
        for env, pool in pools.items()
    }
    num_evals = num_held_out + sum(len(keys) for keys in old_evals.values()) + sum(numbers.values())
    least = policy.min_eval_total
    if policy.max_eval_total is not None:
        least = min(least, policy.max_eval_total)
    if num_evals >= least or not policy.eval_ratio:
        return numbers
    room = {}
    for env, pool in pools.items():
        most = len(pool.tasks) // 2
        if policy.max_eval_per_env is not None:
            most = min(most, policy.max_eval_per_env)
        room[env] = max(0, min(most - len(old_evals[env]), len(pool.free)) - numbers[env])
    if sum(room.values()) < least - num_evals:
        return numbers
    more = take_turns(room, least - num_evals)
    return {env: number + more[env] for env, number in numbers.items()}


def _target(num_tasks: int, policy: RankPolicy) -> int:
    """Return the target number of eval tasks of an environment, without float rounding."""
    target = int(num_tasks * Fraction(str(policy.eval_ratio)))
    if policy.max_eval_per_env is not None:
        target = min(target, policy.max_eval_per_env)
    return target if target >= policy.min_eval_per_env else 0


def _cut_to_total(draft: _Draft, past: Past, most: int | None) -> dict[str, list[str]]:
    """Cut the eval tasks to a total, those of earlier versions last; return the cut ones."""
    if most is None:
        return {}
    old = {env: [k for k in keys if k in past.evaluated] for env, keys in draft.evals.items()}
    new = {env: [k for k in keys if k not in past.evaluated] for env, keys in draft.evals.items()}
    cut: dict[str, list[str]] = {env: [] for env in draft.evals}
    remaining = most
    for part in (old, new):
        quotas = take_turns({env: len(keys) for env, keys in part.items()}, remaining)
        remaining -= sum(quotas.values())
        for env, keys in part.items():
            cut[env] += keys[quotas[env] :]
            part[env] = keys[: quotas[env]]
    draft.evals = {env: old[env] + new[env] for env in draft.evals}
    return cut


def _cap_training(draft: _Draft, policy: RankPolicy) -> None:
    """Exclude training tasks above the caps, highest rank first; the share is cut last."""
    if policy.max_train_per_env is not None:
        _cut_training(draft, dict.fromkeys(draft.trains, policy.max_train_per_env))
    if policy.max_train_total is not None:
        _cut_training(draft, take_turns(_sizes(draft.trains), policy.max_train_total))
    sizes = {env: size for env, size in _sizes(draft.trains).items() if size}
    if policy.max_env_train_share is None or len(sizes) < 2:
        return
    cap = largest_cap(sizes, policy.max_env_train_share)
    if cap is None:
        raise DatasetError(
            f"max_env_train_share {policy.max_env_train_share:g} cannot hold: {len(sizes)}"
            f" environments have training tasks, so the largest has at least 1/{len(sizes)} of"
            f" them. Set it to {1 / len(sizes):.2f} or more, or leave it out"
        )
    _cut_training(draft, dict.fromkeys(sizes, cap))


def _cut_training(draft: _Draft, quotas: Mapping[str, int]) -> None:
    for env_key, quota in quotas.items():
        draft.exclude(draft.trains[env_key][quota:], TRAIN_CAP)
        del draft.trains[env_key][quota:]


def _by_md5(
    tasks: Iterable[TaskRow],
    policy: Md5ThresholdPolicy,
    past: Past,
    promptless: Iterable[PromptlessRow],
) -> _Draft:
    """Split each environment like the historic script, keeping eval tasks of earlier versions."""
    draft = _Draft()
    barred = frozenset() if policy.trained_may_become_eval else past.trained
    dropped = _by_env(promptless, policy.held_out_envs)
    for env_key, (held_out, shared) in _by_env(tasks, policy.held_out_envs).items():
        draft.exclude((key for key in held_out if key in barred), TRAINED)
        num_dropped = len(dropped[env_key][1]) if env_key in dropped else 0
        threshold = _threshold(len(shared) + num_dropped, policy)
        evals = {key for key in shared if md5_share(key) < threshold and key not in barred}
        evals.update(key for key in shared if key in past.evaluated)
        evals.update(key for key in held_out if key not in barred)
        ordered = sorted((*held_out, *shared), key=lambda key: (md5_share(key), key))
        draft.evals[env_key] = [key for key in ordered if key in evals]
        draft.trains[env_key] = [
            key for key in ordered if key not in evals and key not in draft.excluded
        ]
    _cut_md5_evals(draft, policy, past)
    total = sum(_sizes(draft.trains).values())
    if policy.max_env_train_share is not None and policy.max_env_train_share < 1.0:
        most = int(total * policy.max_env_train_share)
        _cut_training(draft, dict.fromkeys(draft.trains, most))
    return draft


def _threshold(num_tasks: int, policy: Md5ThresholdPolicy) -> float:
    """Return the hash below which a task is an eval task, with the script's arithmetic."""
    target = int(num_tasks * policy.eval_ratio)
    if policy.max_eval_per_env is not None:
        target = min(target, policy.max_eval_per_env)
    return target / num_tasks if num_tasks and target >= policy.min_eval_per_env else 0.0


def _cut_md5_evals(draft: _Draft, policy: Md5ThresholdPolicy, past: Past) -> None:
    sizes = _sizes(draft.evals)
    if policy.max_eval_total is None or sum(sizes.values()) <= policy.max_eval_total:
        return
    minimum = {env: min(policy.keep_eval_per_env, size) for env, size in sizes.items()}
    more = take_turns(
        {env: size - minimum[env] for env, size in sizes.items()},
        policy.max_eval_total - sum(minimum.values()),
    )
    for env_key, keys in draft.evals.items():
        keys.sort(key=lambda key: key not in past.evaluated)  # stable: by hash within each half
        quota = minimum[env_key] + more[env_key]
        draft.exclude(keys[quota:], EVAL_CAP)
        del keys[quota:]


def _as_published(tasks: Iterable[TaskRow], policy: PublishedPolicy, past: Past) -> _Draft:
    draft = _Draft()
    barred = frozenset() if policy.trained_may_become_eval else past.trained
    for row in tasks:
        place = policy.splits.get(row.key)
        if place is None:
            draft.excluded[row.key] = UNPUBLISHED
        elif place == "train" and row.key in past.evaluated:
            draft.excluded[row.key] = OVERRULED_TRAIN
        elif place == "eval" and row.key in barred:
            draft.excluded[row.key] = OVERRULED_EVAL
        else:
            places = draft.evals if place == "eval" else draft.trains
            places.setdefault(row.env_key, []).append(row.key)
    return draft


def _by_env(tasks: Iterable[FileRow], held_out: HeldOut) -> dict[str, tuple[list[str], list[str]]]:
    """Return, by environment in order of name, the keys of held-out tasks and of the others."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for row in tasks:
        is_held_out = row.env_key in held_out.get(row.task_modality, ())
        groups.setdefault(row.env_key, ([], []))[0 if is_held_out else 1].append(row.key)
    return dict(sorted(groups.items()))


def _sizes(keys: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {env_key: len(each) for env_key, each in keys.items()}
