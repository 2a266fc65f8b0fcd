"""Worker group of Ray actors: engines, learner ranks and rollout workers, each its own process.

The training loop stays in the trainer's own process: the runner stops, watches and fences that one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hillclimb.protocol.events import StartPhase
from trainer.attempt.startup import StartupPhases
from trainer.engines.base import Engine
from trainer.errors import EngineError, PlacementError, SpecError, TrainerError
from trainer.inputs.accepted_paths import library_versions, own_version, require_accepted
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import SamplingWorkers, WorkerGroup, WorkerRestarted, weight_sync
from trainer.workers.phase_switch import PhaseSwitch, SwitchedSync
from trainer.workers.ray.cluster import Bundle, RayCluster
from trainer.workers.ray.engine_actor import HEALTH_GROUP, EngineActor, EngineFacts
from trainer.workers.ray.learner_actor import LearnerActor
from trainer.workers.ray.proxies import (
    RemoteEngine,
    RemoteLearner,
    RemoteRolloutWorkers,
    SpreadEngine,
)
from trainer.workers.ray.rollout_actor import RolloutActor
from trainer.workers.ray.shared_disk import DISK_PROBE

_Workers = TypeVar("_Workers", WorkerGroup, SamplingWorkers)
_MAX_RESTARTS = 5
"""Restarts of an engine or rollout worker over a run; one that dies more often has a defect."""
_RESTART = {"max_restarts": _MAX_RESTARTS, "max_task_retries": -1}
START_S = 1500.0
"""Deadline for all workers to load their models (seconds): shorter than the service's deadline for
a trainer's start, so that the trainer reports which part hung."""
CLOSE_S = 10.0
"""Deadline for an engine to stop its own processes (seconds)."""
ROLLOUTS_CLOSE_S = 25.0
"""Deadline for a rollout worker to release its provider's resources (seconds): longer than the
`fleet` provider tries to delete its instances."""


def ray_workers(
    factory: WorkerFactory, startup: StartupPhases, environ: Mapping[str, str] | None = None
) -> WorkerGroup:
    """Start or join a cluster and place the workers; returns when all of them are ready.

    Raises:
        PlacementError: no cluster, or one that is too small.
        SpecError, ModelUnavailable, EngineError: raised by a worker while it starts.
    """
    return _Placement(
        factory, startup, os.environ if environ is None else environ, has_learner=True
    ).workers()


def ray_samplers(
    factory: WorkerFactory, startup: StartupPhases, environ: Mapping[str, str] | None = None
) -> SamplingWorkers:
    """Start or join a cluster and place engines and rollout workers, without a learner.

    Raises:
        PlacementError, SpecError, ModelUnavailable, EngineError: as `ray_workers`.
    """
    return _Placement(
        factory, startup, os.environ if environ is None else environ, has_learner=False
    ).samplers()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    """Workers that have been placed and are starting."""

    proxies: list[RemoteEngine]
    workers: list[Any]
    engines: list[Any]
    """Ray's object references of the engines' starts."""
    ready: list[Any]
    """Those of the rollout workers' starts."""

    @property
    def phases(self) -> dict[StartPhase, list[Any]]:
        """The references by phase of the start."""
        return {"engines": self.engines, "environments": self.ready}


class _Placement:
    """Places the workers of one attempt into a cluster's placement group, and starts them."""

    def __init__(
        self,
        factory: WorkerFactory,
        startup: StartupPhases,
        environ: Mapping[str, str],
        *,
        has_learner: bool,
    ) -> None:
        spec = factory.spec
        self._factory = factory
        self._startup = startup
        self._num_engines = spec.engine.data_parallel_size
        self._num_ranks = spec.placement.learner_ranks if has_learner else 0
        self._num_workers = spec.placement.rollout_workers
        # GPUs per rank, and per process of an engine.
        self._gpus = 0.0
        self._shares_gpus = has_learner and spec.engine.weight_transport == "ipc"
        self._takes_turns = has_learner and spec.placement.colocate
        self._notices: list[WorkerRestarted] = []
        shutil.rmtree(factory.weights_dir, ignore_errors=True)
        with startup.phase("ray"):
            num_cpus = sum(bundle.cpus for bundle in self._bundles())
            self._cluster = RayCluster(num_cpus, environ)
            self._gpus = 1.0 if self._cluster.has_gpus else 0.0
            self._cluster.reserve(self._bundles())
        if has_learner:
            self._factory = factory.between_gpus() if self._gpus else factory
        self._refuse_multi_node()
        self._start_until = time.monotonic() + START_S

    def _left_s(self) -> float:
        return max(0.0, self._start_until - time.monotonic())

    def _refuse_multi_node(self) -> None:
        """Refuse several machines without the spec's flag or evidence: no run was ever on them."""
        machines = self._cluster.num_machines
        if machines == 1:
            return
        try:
            require_accepted(
                self._factory.spec,
                "cluster",
                subject=None,
                present=own_version() | library_versions("torch", "ray"),
                never=f"the Ray cluster has {machines} machines, and a run was never spread over"
                " several",
                instead="use one machine",
            )
        except SpecError:
            self._cluster.leave()
            raise

    def workers(self) -> WorkerGroup:
        return self._start(self._worker_group)

    def samplers(self) -> SamplingWorkers:
        return self._start(self._samplers)

    def _start(self, place: Callable[[], _Workers]) -> _Workers:
        """Run `place`; on any failure leave the cluster and raise the trainer's error."""
        try:
            return place()
        except (RayActorError, RayTaskError) as fault:
            self._cluster.leave()
            cause = fault.cause if isinstance(fault, RayTaskError) else None
            if isinstance(cause, TrainerError):
                raise cause from fault
            raise PlacementError(f"a worker did not start: {fault}") from fault
        except GetTimeoutError as late:
            self._cluster.leave()
            raise PlacementError(f"the workers did not start in {START_S:g} s") from late
        except BaseException:
            self._cluster.leave()
            raise

    def _worker_group(self) -> WorkerGroup:
        # Held here because Ray ends an actor with the handle that made it; proxies use its name.
        self._engines = [self._engine(number) for number in range(self._num_engines)]
        ranks = [self._rank(number) for number in range(self._num_ranks)]
        self._check_shared_disk(ranks)
        sampling = self._begin_sampling()
        if self._shares_gpus:
            # vLLM sizes its cache by the GPU's free memory when it starts: ranks must not load
            # their models meanwhile, only import what they need.
            importing = [rank.import_learner.remote() for rank in ranks]
            self._await({"engines": sampling.engines})
            ray.get(importing, timeout=self._left_s())
        if self._takes_turns:
            # The ranks load their models and a checkpoint into the memory of the engines.
            level = self._factory.spec.engine.sleep_level
            ray.get([each.sleep.remote(level) for each in self._engines], timeout=self._left_s())
        # The ranks bind the port at once: starting engines open ports of their own meanwhile.
        address = ray.get(ranks[0].address.remote(), timeout=self._left_s())
        self._startup.begin("weights")
        loading = [rank.start.remote(address) for rank in ranks]
        self._await({"weights": loading, **sampling.phases})
        num_parameters: int = ray.get(loading[0])
        learner = RemoteLearner(ranks, num_parameters)
        samplers = self._sampling_workers(sampling)
        weights = weight_sync(self._factory, learner, sampling.proxies, keep_newest=True)
        if self._takes_turns:
            level = self._factory.spec.engine.sleep_level
            switch = PhaseSwitch(learner, sampling.proxies, level=level)
            learner.before_step = switch.to_learner
            weights = SwitchedSync(switch, weights)
        return WorkerGroup(
            learner=learner,
            weights=weights,
            **{each.name: getattr(samplers, each.name) for each in fields(samplers)},
        )

    def _samplers(self) -> SamplingWorkers:
        self._engines = [self._engine(number) for number in range(self._num_engines)]
        self._check_shared_disk([])
        sampling = self._begin_sampling()
        self._await(sampling.phases)
        return self._sampling_workers(sampling)

    def _await(self, phases: Mapping[StartPhase, Sequence[Any]]) -> None:
        """Wait until every worker of the phases has started; report each phase as it ends.

        A phase that was waited for before is not reported again. The first failure is raised at
        once, not behind a slow start.
        """
        pending = {
            start: name
            for name, starts in phases.items()
            for start in starts
            if name not in self._startup.seconds
        }
        while pending:
            done, _ = ray.wait([*pending], num_returns=1, timeout=self._left_s())
            if not done:
                raise GetTimeoutError("workers are still starting")
            for start in done:
                ray.get(start)
                name = pending.pop(start)
                if name not in pending.values():
                    self._startup.end(name)

    def _check_shared_disk(self, ranks: Sequence[Any]) -> None:
        """Refuse several machines without a shared disk: workers load and save through it.

        Every worker reads a nonce, because an old directory of the same path may exist elsewhere.
        """
        if self._cluster.num_machines == 1:
            return
        probe, nonce = self._factory.attempt_dir / DISK_PROBE, uuid.uuid4().hex
        probe.write_text(nonce)
        try:
            calls = [worker.shares_disk.remote(nonce) for worker in (*self._engines, *ranks)]
            answers = ray.get(calls, timeout=self._left_s())
        finally:
            probe.unlink()
        names = [*map(_engine_name, range(self._num_engines)), *map(_rank_name, range(len(ranks)))]
        blind = [name for name, shares in zip(names, answers, strict=True) if not shares]
        if blind:
            raise SpecError(
                f"{', '.join(blind)} cannot read what the trainer writes into"
                f" {self._factory.attempt_dir}: the machines of a run must share a disk"
            )

    def _begin_sampling(self) -> _Sampling:
        """Start the placed engines, and place and start the rollout workers on them."""
        self._startup.begin("engines")
        engines = [engine.start.remote() for engine in self._engines]
        proxies = [
            RemoteEngine(
                _engine_name(number),
                partial(self._record_restart, "engine", number),
                num_processes=self._factory.spec.engine.tensor_parallel_size,
            )
            for number in range(self._num_engines)
        ]
        spread = proxies[0] if len(proxies) == 1 else SpreadEngine(proxies)
        self._startup.begin("environments")
        workers = [self._worker(number, spread) for number in range(self._num_workers)]
        ready = [worker.ready.remote() for worker in workers]
        return _Sampling(proxies=proxies, workers=workers, engines=engines, ready=ready)

    def _sampling_workers(self, sampling: _Sampling) -> SamplingWorkers:
        """Return the group of the workers that have started."""
        facts: EngineFacts = ray.get(sampling.engines[0])
        proxies = sampling.proxies

        def abandon() -> None:
            shutil.rmtree(self._factory.weights_dir, ignore_errors=True)
            self._cluster.leave()

        async def close() -> None:
            try:
                await asyncio.gather(
                    *map(_close_rollouts, sampling.workers), *map(_close_engine, proxies)
                )
            finally:
                abandon()

        async def refresh() -> None:
            await asyncio.gather(*(proxy.refresh() for proxy in proxies))

        return SamplingWorkers(
            engines=tuple(proxies),
            rollout_runner=RemoteRolloutWorkers(
                sampling.workers,
                partial(self._record_restart, "rollout worker"),
                num_engines=self._num_engines,
            ),
            engine_name=facts.name,
            fallback=facts.fallback,
            close=close,
            abandon=abandon,
            refresh=refresh,
            notices=self._take_notices,
        )

    def _bundles(self) -> list[Bundle]:
        """Return the bundles: engines, ranks, rollout workers.

        An engine and a rank that share a GPU share a bundle: IPC handles need the same machine.
        """
        size = self._factory.spec.engine.tensor_parallel_size
        if self._shares_gpus:
            pairs = [Bundle(2.0, self._gpus)] * self._num_engines
            return [*pairs, *(Bundle(1.0) for _ in range(self._num_workers))]
        return [
            *(Bundle(1.0, self._gpus * size) for _ in range(self._num_engines)),
            *(Bundle(1.0, self._gpus) for _ in range(self._num_ranks)),
            *(Bundle(1.0) for _ in range(self._num_workers)),
        ]

    def _place(self, worker: Any, bundle: int, gpus: float, **options: Any) -> Any:  # noqa: ANN401
        return worker.options(
            # No `runtime_env`, even for a variable: Ray could not use a process from its pool then,
            # which costs seconds.
            num_cpus=1.0,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._cluster.group, placement_group_bundle_index=bundle
            ),
            **options,
        )

    def _engine(self, number: int) -> Any:  # noqa: ANN401
        gpus = self._gpus * self._factory.spec.engine.tensor_parallel_size
        # A direct transport leaves no file from which a restarted engine could load its weights.
        restart = {} if self._factory.spec.engine.is_direct else _RESTART
        return self._place(
            # Room for every rollout's call: the engine itself batches and queues.
            ray.remote(concurrency_groups={HEALTH_GROUP: 10_000})(EngineActor),  # type: ignore[call-overload]
            number,
            gpus / 2 if self._shares_gpus else gpus,
            max_concurrency=10_000,
            name=_engine_name(number),
            **restart,
        ).remote(self._factory)

    def _rank(self, number: int) -> Any:  # noqa: ANN401
        shares = self._shares_gpus
        bundle = number if shares else self._num_engines + number
        gpus = self._gpus / 2 if shares else self._gpus
        return self._place(
            ray.remote(LearnerActor), bundle, gpus, max_concurrency=2, name=_rank_name(number)
        ).remote(self._factory, number, self._num_ranks)

    def _worker(self, number: int, engine: Engine) -> Any:  # noqa: ANN401
        bundle = len(self._bundles()) - self._num_workers + number
        return self._place(
            ray.remote(RolloutActor),
            bundle,
            0.0,
            max_concurrency=10_000,
            name=f"rollouts-{number}",
            **_RESTART,
        ).remote(self._factory, engine, number)

    def _record_restart(self, worker: str, number: int) -> None:
        message = f"{worker} {number} died and was restarted; its unfinished calls were repeated"
        self._notices.append(WorkerRestarted(code="worker_restarted", message=message))

    def _take_notices(self) -> tuple[WorkerRestarted, ...]:
        notices, self._notices = tuple(self._notices), []
        return notices


def _engine_name(number: int) -> str:
    return f"engine-{number}"


def _rank_name(number: int) -> str:
    return f"learner-{number}"


async def _close_engine(engine: RemoteEngine) -> None:
    """Stop an engine's own processes; a dead or hung actor ends with the cluster."""
    with suppress(EngineError, RayActorError, RayTaskError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await engine.close()


async def _close_rollouts(worker: Any) -> None:  # noqa: ANN401 - a handle of Ray's
    """Let a rollout worker release its provider's resources; a later sweep deletes the rest."""
    with suppress(RayActorError, RayTaskError, TimeoutError):
        async with asyncio.timeout(ROLLOUTS_CLOSE_S):
            await worker.close.remote()
