"""Task sampler: draws the tasks of each training step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Groups
from trainer.algo.curriculum import Curriculum, Reweighting
from trainer.errors import CheckpointError, DataError
from trainer.inputs.tasks.coverage import coverage_metrics
from trainer.inputs.tasks.pools import TaskPool
from trainer.inputs.tasks.sampling import BALANCED, PromptSampling
from trainer.inputs.tasks.shares import Shares

UNSAMPLED_AFTER = 10
"""Steps after which an environment without a drawn task gets a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Conclusions of the sampler from a step: changed shares, environments to warn about."""

    reweighting: Reweighting | None = None
    unsampled: tuple[str, ...] = ()
    """Environments without any drawn task; reported once."""


class TaskSampler:
    """Draws the tasks of each step; an environment's epoch is its own, and never ends the run's.

    `next_step` may run ahead of `observe` by any number of steps. The same calls in the same order
    give the same tasks, and so does a sampler restored from a `state` between two calls.

    Raises:
        DataError: no tasks, equal keys, fewer tasks than a step takes, or in balanced mode an
            environment with fewer tasks than its share of a step.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        prompts_per_step: int,
        seed: int,
        sampling: PromptSampling = BALANCED,
    ) -> None:
        by_env = _by_env(tasks, prompts_per_step)
        most = -(-prompts_per_step // len(by_env))
        small = [key for key, pool in by_env.items() if len(pool) < most]
        if small and sampling.mode == "balanced" and sampling.curriculum is None:
            raise DataError(f"{', '.join(small)}: fewer than {most} tasks, one step's share")
        self._sampling = sampling
        self._prompts_per_step = prompts_per_step
        self._seed = seed
        self._step = 0
        self._has_warned = False
        keys = "\n".join(task.key for task in tasks)
        self._digest = hashlib.sha256(keys.encode()).hexdigest()
        self._pools = {key: TaskPool(key, pool, seed) for key, pool in by_env.items()}
        weights = {key: sampling.weight(len(pool)) for key, pool in by_env.items()}
        self._curriculum = (
            Curriculum(weights, sampling.curriculum) if sampling.curriculum is not None else None
        )
        self._shares = Shares(
            list((self._curriculum.shares if self._curriculum else weights).values()),
            prompts=prompts_per_step,
            sizes=[len(pool) for pool in by_env.values()],
            minimum=sampling.minimum,
        )

    def next_step(self) -> tuple[Task, ...]:
        """Return the next step's `prompts_per_step` tasks, no two the same."""
        counts = zip(self._pools.values(), self._shares.next_counts(), strict=True)
        tasks = [task for pool, count in counts for task in pool.draw(count)]
        self._step += 1
        return tuple(tasks)

    def observe(self, step: int, groups: Groups) -> Observation:
        """Count the rollouts of a training step as evidence for the shares of later draws."""
        reweighting = self._curriculum.observe(step, groups) if self._curriculum else None
        if self._curriculum and reweighting:
            self._shares.reweight(list(self._curriculum.shares.values()))
        return Observation(reweighting=reweighting, unsampled=self._unsampled())

    def metrics(self) -> dict[str, float]:
        """Return the coverage of the tasks, and the curriculum's shares and signal."""
        metrics = coverage_metrics(self._pools)
        return metrics | (self._curriculum.metrics() if self._curriculum else {})

    def state(self) -> dict[str, JsonValue]:
        """Return the position as JSON; `from_state` continues with the exact next step."""
        return {
            "step": self._step,
            "seed": self._seed,
            "prompts_per_step": self._prompts_per_step,
            "tasks_sha256": self._digest,
            "settings": self._sampling.state(),
            "shares": self._shares.state(),
            "pools": {key: pool.state() for key, pool in self._pools.items()},
            "curriculum": self._curriculum.state() if self._curriculum else None,
            "has_warned": self._has_warned,
        }

    @classmethod
    def from_state(
        cls,
        tasks: Sequence[Task],
        state: Mapping[str, JsonValue],
        *,
        prompts_per_step: int,
        seed: int,
        sampling: PromptSampling = BALANCED,
    ) -> TaskSampler:
        """Return a sampler that continues where `state` was taken, however many steps that was.

        Raises:
            CheckpointError: the state is malformed, or belongs to other tasks, settings or steps
                of another size: its position means nothing there.
        """
        step, drawn_by, size = (state.get(key) for key in ("step", "seed", "prompts_per_step"))
        pools = state.get("pools")
        if not isinstance(step, int) or not isinstance(drawn_by, int) or not isinstance(size, int):
            raise CheckpointError("sampler state is malformed")
        if not isinstance(pools, dict):
            raise CheckpointError("sampler state is malformed, or of an earlier version")
        if size != prompts_per_step:
            raise CheckpointError(
                f"the checkpoint's steps have {size} prompts: set schedule.train_batch_size to"
                f" {size} ({prompts_per_step} asked for)"
            )
        if drawn_by != seed:
            raise CheckpointError(
                f"the checkpoint's tasks were drawn by the seed {drawn_by}: set data.seed to"
                f" {drawn_by} ({seed} asked for)"
            )
        sampler = cls(tasks, size, seed, sampling)
        if sampler._digest != state.get("tasks_sha256"):
            raise CheckpointError("sampler state belongs to another set of tasks")
        sampling.check_same(state.get("settings"))
        sampler._step = step
        sampler._has_warned = state.get("has_warned") is True
        sampler._shares.restore(state.get("shares"))
        for env_key, pool in sampler._pools.items():
            pool.restore(pools.get(env_key))
        if sampler._curriculum:
            sampler._curriculum.restore(state.get("curriculum"))
            sampler._shares.reweight(list(sampler._curriculum.shares.values()))
        return sampler

    def _unsampled(self) -> tuple[str, ...]:
        if self._has_warned or self._step < UNSAMPLED_AFTER:
            return ()
        never = tuple(key for key, pool in self._pools.items() if not pool.num_drawn)
        self._has_warned = bool(never)
        return never


def _by_env(tasks: Sequence[Task], prompts_per_step: int) -> dict[str, list[Task]]:
    if not tasks or prompts_per_step < 1:
        raise DataError("a sampler needs at least one task and one prompt per step")
    if len({task.key for task in tasks}) != len(tasks):
        raise DataError("task keys must be unique")
    if len(tasks) < prompts_per_step:
        raise DataError(f"{len(tasks)} tasks are fewer than one step's {prompts_per_step}")
    by_env: dict[str, list[Task]] = {}
    for task in tasks:
        by_env.setdefault(task.env_key, []).append(task)
    return by_env
