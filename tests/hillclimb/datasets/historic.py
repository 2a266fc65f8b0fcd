"""The historic split, written a second time and literally, step by step as its rules are told.

It shares no code with `hillclimb.datasets`: it works on raw dictionaries and is what
`md5_threshold` is compared with. Steps: modality, environments, difficulty, first N, first of each
key, excluded environments and tasks, group by environment, split, cap of all eval tasks, cap of an
environment's training tasks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]


@dataclass
class Constants:
    eval_ratio: float
    min_eval_samples: int
    max_eval_samples: int | None
    max_env_train_ratio: float
    max_eval_prompts: int | None
    min_per_env: int
    held_out: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Call:
    modality: str | None = None
    env_filter: str | None = None
    difficulty_filter: str | None = None
    max_tasks: int | None = None
    excluded_envs: tuple[str, ...] = ()
    excluded_keys: tuple[str, ...] = ()


def key_of(task: Raw) -> Any:
    return task.get("key") or task.get("task_key")


def env_of(task: Raw) -> Any:
    return task.get("env_key") or task.get("env_id")


def number_of(key: str) -> float:
    first_eight = hashlib.md5(key.encode("utf-8")).hexdigest()[:16]
    return int(first_eight, 16) / 18446744073709551616


def historic_split(tasks: list[Raw], call: Call, constants: Constants) -> tuple[set[str], set[str]]:
    """The keys of the train and of the eval tasks."""
    groups: dict[str, list[str]] = {}
    dropped = set()
    for t in chosen(tasks, call):
        groups.setdefault(env_of(t), []).append(key_of(t))
        if not t.get("prompt"):
            dropped.add(key_of(t))
    train: dict[str, list[str]] = {env: [] for env in groups}
    evals: dict[str, list[str]] = {env: [] for env in groups}
    for env, keys in groups.items():
        effective = share_of(env, len(keys), call, constants)
        for key in keys:
            if key not in dropped:
                (evals if number_of(key) < effective else train)[env].append(key)
    evals = capped_evals(evals, constants)
    if constants.max_env_train_ratio < 1.0:
        most = int(sum(len(keys) for keys in train.values()) * constants.max_env_train_ratio)
        train = {env: sorted(keys, key=number_of)[:most] for env, keys in train.items()}
    return (
        {key for keys in train.values() for key in keys},
        {key for keys in evals.values() for key in keys},
    )


def share_of(env: str, size: int, call: Call, constants: Constants) -> float:
    """The share of an environment's tasks that are eval tasks: all of one that is held out."""
    if env in constants.held_out.get(call.modality or "", []):
        return 1.0
    target = int(size * constants.eval_ratio)
    if constants.max_eval_samples is not None and target > constants.max_eval_samples:
        target = constants.max_eval_samples
    return 0.0 if target < constants.min_eval_samples else target / size


def chosen(tasks: list[Raw], call: Call) -> list[Raw]:
    if call.modality:
        tasks = [t for t in tasks if t.get("task_modality") == call.modality]
    if call.env_filter:
        wanted = [name.strip() for name in call.env_filter.split(",") if name.strip()]
        tasks = [t for t in tasks if t.get("env_key") in wanted or t.get("env_id") in wanted]
    if call.difficulty_filter:
        levels = [int(level) for level in call.difficulty_filter.split(",") if level.strip()]
        tasks = [t for t in tasks if t.get("difficulty") in levels]
    if call.max_tasks:
        tasks = tasks[: call.max_tasks]
    seen, distinct = set(), []
    for t in tasks:
        if key_of(t) and key_of(t) not in seen:
            seen.add(key_of(t))
            distinct.append(t)
    tasks = [t for t in distinct if env_of(t) not in call.excluded_envs]
    return [t for t in tasks if key_of(t) not in call.excluded_keys]


def capped_evals(evals: dict[str, list[str]], constants: Constants) -> dict[str, list[str]]:
    total = sum(len(keys) for keys in evals.values())
    if not constants.max_eval_prompts or total <= constants.max_eval_prompts:
        return evals
    waiting = {env: sorted(keys, key=number_of) for env, keys in evals.items()}
    kept: dict[str, list[str]] = {}
    for env, keys in waiting.items():
        kept[env] = keys[: constants.min_per_env]
        waiting[env] = keys[constants.min_per_env :]
    budget = constants.max_eval_prompts - sum(len(keys) for keys in kept.values())
    while budget > 0 and any(waiting.values()):
        for env in sorted(waiting):
            if budget > 0 and waiting[env]:
                kept[env].append(waiting[env].pop(0))
                budget -= 1
    return kept
