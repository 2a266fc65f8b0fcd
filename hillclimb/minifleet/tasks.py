"""Generated task sets: the train and eval tasks of the miniature apps."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS, Split, make_task
from hillclimb.minifleet.framework.app import App
from hillclimb.minifleet.framework.template import Template


class TaskGenerationError(ValueError):
    """The apps cannot generate the requested tasks; the message is a sentence for the user."""


_INDEX_RANGE = 1_000_000
_MAX_COLLISIONS = 1_000
"""Draws in a row that may repeat a prompt before the app counts as exhausted."""


def minifleet_tasks(
    env_keys: Sequence[str],
    split: Split,
    n_per_env: int | Mapping[str, int],
    seed: int,
    held_out_share: float = 0.0,
) -> tuple[Task, ...]:
    """Return `n_per_env` distinct tasks of each app, grouped by app in the order of `env_keys`.

    `n_per_env` is one count for all or a count for each; an app's first tasks are the same
    whatever the others' counts.
    A task's content depends on its key alone; the seed chooses keys. Templates alternate.
    Of the tasks of each app exactly `round(n_per_env * held_out_share)` come from templates that
    no train task has; train and eval share no name either.

    Raises:
        TaskGenerationError: an unknown or repeated app, a negative count, a share outside [0, 1], a
            share above 0 for the train split, or more tasks than there are.
    """
    if len(set(env_keys)) != len(env_keys) or not set(env_keys) <= set(APPS):
        raise TaskGenerationError(f"env_keys must be distinct and among {', '.join(APPS)}")
    counts = n_per_env if isinstance(n_per_env, Mapping) else dict.fromkeys(env_keys, n_per_env)
    if min(counts.values(), default=0) < 0 or not 0.0 <= held_out_share <= 1.0:
        raise TaskGenerationError(
            "n_per_env must not be negative, held_out_share must lie in [0, 1]"
        )
    if split == "train" and held_out_share:
        raise TaskGenerationError("the train split never holds held-out templates")
    tasks: list[Task] = []
    for env_key in env_keys:
        app, n_held_out = APPS[env_key], round(counts[env_key] * held_out_share)
        for held_out, count in ((False, counts[env_key] - n_held_out), (True, n_held_out)):
            templates = [each for each in app.templates if each.held_out is held_out]
            rng = random.Random(f"{seed}/{env_key}/{split}/{held_out}")
            tasks += _distinct_tasks(app, templates, split, count, rng)
    return tuple(tasks)


def _distinct_tasks(
    app: App, templates: list[Template], split: Split, count: int, rng: random.Random
) -> list[Task]:
    turns = rng.sample(templates, len(templates))
    tasks: list[Task] = []
    seen: set[tuple[str, ...]] = set()
    collisions = 0
    while len(tasks) < count:
        template = turns[len(tasks) % len(turns)]
        task = make_task(app, template, split, rng.randrange(_INDEX_RANGE))
        identity = (task.prompt, *task.env_variables.values())
        if identity in seen:
            collisions += 1
            if collisions > _MAX_COLLISIONS:
                raise TaskGenerationError(
                    f"{app.key}/{split} has fewer than {count} distinct tasks"
                )
            continue
        collisions = 0
        seen.add(identity)
        tasks.append(task)
    return tasks
