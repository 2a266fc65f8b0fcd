"""Builds a validation from a spec: tasks, environments and a teacher; no model, no engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from itertools import groupby, islice

from hillclimb.blobs.base import BlobStore
from hillclimb.environment.base import EnvProvider
from hillclimb.environment.task import Task
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.events import RunWarning
from hillclimb.spec.run import RunSpec
from trainer.attempt.context import AttemptContext
from trainer.attempt.watchdog import PARTIAL_REPORT, Watchdog
from trainer.envs.choose import choose_provider
from trainer.errors import DataError
from trainer.inputs.tasks.sets import load_tasks
from trainer.jobs.startup_event import StartupInfo, emit_started
from trainer.jobs.validate.checks import Checker
from trainer.jobs.validate.endpoint import NOTHING, Endpoint
from trainer.jobs.validate.episodes import EpisodeRunner
from trainer.jobs.validate.rows import known_rows, known_use
from trainer.jobs.validate.teacher import TeacherSolver, make_teacher
from trainer.jobs.validate.validator import Validator

EPISODE_SHARE = 0.8
"""Longest episode as a share of `schedule.step_timeout_s`, so that one ends before the deadline."""


def build_validator(
    context: AttemptContext,
    provider: EnvProvider | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Validator:
    """Load the tasks, emit `trainer.started`, and return the validation.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        SpecError: the environments are not available, or the teacher's key is not set.
        DataError: the tasks cannot be loaded.
    """
    spec = context.spec
    with context.startup.phase("tasks"):
        tasks = validation_tasks(spec, context.store)
    provider = provider or choose_provider(spec, context.tag())
    episodes = EpisodeRunner(
        provider=provider,
        environment=spec.environment,
        rollout=spec.rollout,
        episode_s=EPISODE_SHARE * spec.schedule.step_timeout_s,
        redactor=Redactor.of(environ),
    )
    solver, endpoint = _solver(context, episodes, environ)
    rows = known_rows(context.store, context.dir)
    info = StartupInfo(
        engine="none", num_parameters=0, num_train_tasks=len(tasks), num_eval_tasks=0
    )
    emit_started(context, info)
    if rows:
        message = f"{len(rows)} tasks were checked by an earlier attempt and are not checked again"
        context.journal.emit(RunWarning(step=0, code="validation_resumed", message=message))
    return Validator(
        context=context,
        tasks=tasks,
        checker=Checker(
            episodes=episodes,
            pass_threshold=spec.eval.pass_threshold,
            solver=solver,
            teacher_is_required=solver is None or solver.spec.required,
        ),
        provider=provider,
        endpoint=endpoint,
        watchdog=Watchdog(context=context, num_sampled=lambda: 0, remainder=PARTIAL_REPORT),
        known=rows,
    )


def _solver(
    context: AttemptContext, episodes: EpisodeRunner, environ: Mapping[str, str]
) -> tuple[TeacherSolver, Endpoint] | tuple[None, None]:
    spec = context.spec
    section = spec.validation.teacher
    if section is None:
        return None, None
    used = known_use(context.store, context.dir) or NOTHING
    teacher, endpoint = make_teacher(section, environ, used)
    solver = TeacherSolver(
        teacher=teacher,
        spec=section,
        episodes=episodes,
        pass_threshold=spec.eval.pass_threshold,
        slots=asyncio.Semaphore(section.concurrency),
    )
    return solver, endpoint


def validation_tasks(spec: RunSpec, store: BlobStore) -> tuple[Task, ...]:
    """Return the tasks to check, by environment: training tasks, then eval tasks.

    Raises:
        DataError: there is none; and as `load_tasks`.
    """
    sets = load_tasks(spec, store)
    order = {key: index for index, key in enumerate(spec.data.env_keys)}
    tasks = sorted((*sets.train, *sets.eval), key=lambda task: order[task.env_key])
    selected = [
        task
        for _, own in groupby(tasks, key=lambda task: task.env_key)
        for task in islice(own, spec.validation.tasks_per_env)
    ]
    if not selected:
        raise DataError("there is no task to validate in these environments")
    return tuple(selected)
