"""From a spec to a validation: tasks, environments and a teacher; no model and no engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from itertools import groupby, islice

from trainer.announcing import Loaded, announce
from trainer.attempt import Attempt
from trainer.contract.events import RunWarning
from trainer.contract.rundir import run_tag
from trainer.contract.spec import RunSpec
from trainer.data.sets import load_tasks
from trainer.envs.base import EnvProvider
from trainer.envs.choose import choose_provider
from trainer.errors import DataError
from trainer.stores.base import BlobStore
from trainer.types import Task
from trainer.validation.checks import Checker
from trainer.validation.endpoint import NOTHING, Endpoint
from trainer.validation.opening import Opener
from trainer.validation.rows import known_rows, known_use
from trainer.validation.teaching import Lessons, make_teacher
from trainer.validation.validator import Validator
from trainer.watchdog import Watchdog

EPISODE_SHARE = 0.8
"""Longest episode as a share of `schedule.step_timeout_s`: something ends before a step is late."""


def build_validator(
    attempt: Attempt,
    provider: EnvProvider | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Validator:
    """Load the tasks, say `trainer.started`, and return the validation.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        SpecError: the environments cannot be had, or the teacher's key is not set.
        DataError: the tasks cannot be made.
    """
    spec = attempt.spec
    tasks = validation_tasks(spec, attempt.store)
    provider = provider or choose_provider(
        spec, run_tag(attempt.dir.run_dir.name, attempt.dir.attempt)
    )
    opener = Opener(
        provider=provider,
        environment=spec.environment,
        rollout=spec.rollout,
        episode_s=EPISODE_SHARE * spec.schedule.step_timeout_s,
    )
    lessons, endpoint = _lessons(attempt, opener, environ)
    known = known_rows(attempt.store, attempt.dir)
    loaded = Loaded(engine="none", num_parameters=0, num_train_tasks=len(tasks), num_eval_tasks=0)
    announce(attempt, loaded)
    if known:
        message = f"{len(known)} tasks were checked by an earlier attempt and are not checked again"
        attempt.journal.emit(RunWarning, step=0, code="validation_resumed", message=message)
    return Validator(
        tasks=tasks,
        checker=Checker(
            opener=opener,
            pass_threshold=spec.eval.pass_threshold,
            lessons=lessons,
            teacher_is_required=lessons is None or lessons.spec.required,
        ),
        provider=provider,
        endpoint=endpoint,
        concurrency=spec.environment.max_concurrent_rollouts,
        store=attempt.store,
        attempt_dir=attempt.dir,
        journal=attempt.journal,
        stop=attempt.stop,
        clock=attempt.clock,
        watchdog=Watchdog(
            schedule=spec.schedule,
            journal=attempt.journal,
            stop=attempt.stop,
            num_drawn=lambda: 0,
            on_blocked=attempt.on_blocked,
            keeps="what it found by then is reported",
        ),
        known=known,
    )


def _lessons(
    attempt: Attempt, opener: Opener, environ: Mapping[str, str]
) -> tuple[Lessons, Endpoint] | tuple[None, None]:
    spec = attempt.spec
    section = spec.validation.teacher
    if section is None:
        return None, None
    used = known_use(attempt.store, attempt.dir) or NOTHING
    teacher, endpoint = make_teacher(section, environ, used)
    lessons = Lessons(
        teacher=teacher,
        spec=section,
        opener=opener,
        pass_threshold=spec.eval.pass_threshold,
        free=asyncio.Semaphore(section.concurrency),
    )
    return lessons, endpoint


def validation_tasks(spec: RunSpec, store: BlobStore) -> tuple[Task, ...]:
    """Return the tasks that are checked, by environment: training tasks, then eval tasks.

    Raises:
        DataError: there is none; and as `load_tasks`.
    """
    sets = load_tasks(spec, store)
    number = {key: place for place, key in enumerate(spec.data.env_keys)}
    tasks = sorted((*sets.train, *sets.eval), key=lambda task: number[task.env_key])
    chosen = [
        task
        for _, own in groupby(tasks, key=lambda task: task.env_key)
        for task in islice(own, spec.validation.tasks_per_env)
    ]
    if not chosen:
        raise DataError("there is no task to validate in these environments")
    return tuple(chosen)
