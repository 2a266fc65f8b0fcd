"""The crew of a run as Ray actors: engines, learner ranks and rollout workers, each a process.

The controller stays in the trainer's own process: the runner stops, watches and fences that one.
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
import torch
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainer.crew import Crew, Notice, Samplers, weight_sync
from trainer.engines.base import Engine
from trainer.errors import EngineError, PlacementError, SpecError, TrainerError
from trainer.placement.actors import (
    LOOKS,
    SHOWN,
    EngineFacts,
    EngineWorker,
    LearnerWorker,
    RolloutWorker,
)
from trainer.placement.cluster import Bundle, Cluster
from trainer.placement.proxies import RemoteEngine, RemoteLearner, RemoteRolls, SpreadEngine
from trainer.recipe import Recipe

_Workers = TypeVar("_Workers", Crew, Samplers)
_MAX_RESTARTS = 5
"""Of an engine or rollout worker over a run; a worker that dies more often has a cause."""
_ENDLESS = {"max_restarts": _MAX_RESTARTS, "max_task_retries": -1}
START_S = 1500.0
"""How long the workers may take to load their models (seconds), all in all: less than the service
waits for a trainer's first event, so that it is the trainer who says what hung."""
CLOSE_S = 10.0
"""How long an engine may take to stop its own processes."""
LEAVE_S = 25.0
"""How long a rollout worker may take to give back what its provider holds; longer than the `fleet`
provider tries to delete its instances."""


def ray_crew(recipe: Recipe, environ: Mapping[str, str] | None = None) -> Crew:
    """Start or join a cluster and place the workers; returns when all of them are ready.

    Raises:
        PlacementError: no cluster, or too small a one.
        SpecError, ModelUnavailable, EngineError: as the workers meet them.
    """
    return _Placing(recipe, os.environ if environ is None else environ, learns=True).crew()


def ray_samplers(recipe: Recipe, environ: Mapping[str, str] | None = None) -> Samplers:
    """Start or join a cluster and place engines and rollout workers: nothing is learned.

    Raises:
        PlacementError, SpecError, ModelUnavailable, EngineError: as `ray_crew`.
    """
    return _Placing(recipe, os.environ if environ is None else environ, learns=False).samplers()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    """Workers that have been placed and are starting."""

    proxies: list[RemoteEngine]
    workers: list[Any]
    starting: list[Any]
    """What Ray gives for the start of each; the engines' come first."""


class _Placing:
    def __init__(self, recipe: Recipe, environ: Mapping[str, str], *, learns: bool) -> None:
        spec = recipe.spec
        self._recipe = recipe
        self._num_engines = spec.engine.data_parallel_size
        self._num_ranks = spec.placement.learner_ranks if learns else 0
        self._num_workers = spec.placement.rollout_workers
        self._gpus = 1.0 if torch.cuda.is_available() else 0.0
        self._shares_gpus = learns and spec.engine.weight_transport == "ipc"
        self._notices: list[Notice] = []
        shutil.rmtree(recipe.weights_dir, ignore_errors=True)
        self._cluster = Cluster(self._bundles(), environ)
        self._refuse_several_machines()
        self._start_until = time.monotonic() + START_S

    def _left_s(self) -> float:
        return max(0.0, self._start_until - time.monotonic())

    def _refuse_several_machines(self) -> None:
        """Let only experiments onto a cluster of several: no run was ever on one."""
        machines = self._cluster.num_machines
        if machines > 1 and not self._recipe.spec.experimental:
            self._cluster.leave()
            raise SpecError(
                f"the Ray cluster has {machines} machines, and a run was never spread over several"
                " (docs/verified.md): set experimental to true to try it"
            )

    def crew(self) -> Crew:
        return self._placed(self._crew)

    def samplers(self) -> Samplers:
        return self._placed(self._samplers)

    def _placed(self, place: Callable[[], _Workers]) -> _Workers:
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

    def _crew(self) -> Crew:
        # Found by name elsewhere; Ray ends an actor when the handle that made it is gone.
        self._engines = [self._engine(number) for number in range(self._num_engines)]
        ranks = [self._rank(number) for number in range(self._num_ranks)]
        self._demand_shared_disk(ranks)
        sampling = self._begin_sampling()
        if self._shares_gpus:
            # vLLM looks how much of the GPU is free, and would count what a rank loads meanwhile.
            ray.get(sampling.starting[: self._num_engines], timeout=self._left_s())
        # Free now, and taken at once: engines open ports of their own while they start.
        address = ray.get(ranks[0].address.remote(), timeout=self._left_s())
        loading = [rank.start.remote(address) for rank in ranks]
        # Whichever fails first is not waited for behind one that takes long.
        ray.get([*loading, *sampling.starting], timeout=self._left_s())
        num_parameters: int = ray.get(loading[0])
        learner = RemoteLearner(ranks, num_parameters)
        samplers = self._made(sampling)
        return Crew(
            learner=learner,
            weights=weight_sync(self._recipe, learner, sampling.proxies, keeps=True),
            **{each.name: getattr(samplers, each.name) for each in fields(samplers)},
        )

    def _samplers(self) -> Samplers:
        self._engines = [self._engine(number) for number in range(self._num_engines)]
        self._demand_shared_disk([])
        sampling = self._begin_sampling()
        ray.get(sampling.starting, timeout=self._left_s())
        return self._made(sampling)

    def _demand_shared_disk(self, ranks: Sequence[Any]) -> None:
        """Refuse several machines without a disk in common: they load and save through it."""
        if self._cluster.num_machines == 1:
            return
        shown, nonce = self._recipe.attempt_dir / SHOWN, uuid.uuid4().hex
        shown.write_text(nonce)
        try:
            looking = [worker.sees.remote(nonce) for worker in (*self._engines, *ranks)]
            sees = ray.get(looking, timeout=self._left_s())
        finally:
            shown.unlink()
        names = [*map(_engine_name, range(self._num_engines)), *map(_rank_name, range(len(ranks)))]
        blind = [name for name, found in zip(names, sees, strict=True) if not found]
        if blind:
            raise SpecError(
                f"{', '.join(blind)} does not see what the trainer writes into"
                f" {self._recipe.attempt_dir}: machines of a run have to share a disk"
            )

    def _begin_sampling(self) -> _Sampling:
        """Start the engines that are placed, and place and start what rolls out on them."""
        starting = [engine.start.remote() for engine in self._engines]
        proxies = [
            RemoteEngine(
                _engine_name(number),
                partial(self._note, "engine", number),
                num_processes=self._recipe.spec.engine.tensor_parallel_size,
            )
            for number in range(self._num_engines)
        ]
        spread = proxies[0] if len(proxies) == 1 else SpreadEngine(proxies)
        workers = [self._worker(number, spread) for number in range(self._num_workers)]
        ready = [worker.ready.remote() for worker in workers]
        return _Sampling(proxies=proxies, workers=workers, starting=[*starting, *ready])

    def _made(self, sampling: _Sampling) -> Samplers:
        """Return the workers that have started."""
        facts: EngineFacts = ray.get(sampling.starting[0])
        proxies = sampling.proxies

        def abandon() -> None:
            shutil.rmtree(self._recipe.weights_dir, ignore_errors=True)
            self._cluster.leave()

        async def close() -> None:
            try:
                await asyncio.gather(*map(_left, sampling.workers), *map(_closed, proxies))
            finally:
                abandon()

        async def refresh() -> None:
            await asyncio.gather(*(proxy.refresh() for proxy in proxies))

        return Samplers(
            engines=tuple(proxies),
            rolls=RemoteRolls(sampling.workers, partial(self._note, "rollout worker")),
            engine_name=facts.name,
            fallback=facts.fallback,
            close=close,
            abandon=abandon,
            refresh=refresh,
            notices=self._take_notices,
        )

    def _bundles(self) -> list[Bundle]:
        """Engines, ranks, rollout workers; an engine and a rank that share a GPU are one bundle."""
        size = self._recipe.spec.engine.tensor_parallel_size
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
            # No `runtime_env`, even for a variable: it costs seconds, since no process that Ray has
            # ready could be taken then.
            num_cpus=1.0,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._cluster.group, placement_group_bundle_index=bundle
            ),
            **options,
        )

    def _engine(self, number: int) -> Any:  # noqa: ANN401
        gpus = self._gpus * self._recipe.spec.engine.tensor_parallel_size
        # Nobody else has the weights that a dead engine of these drew with.
        lives = {} if self._recipe.spec.engine.is_direct else _ENDLESS
        return self._place(
            ray.remote(concurrency_groups={LOOKS: 10_000})(EngineWorker),  # type: ignore[call-overload]
            number,
            gpus / 2 if self._shares_gpus else gpus,
            max_concurrency=10_000,
            name=_engine_name(number),
            **lives,
        ).remote(self._recipe)

    def _rank(self, number: int) -> Any:  # noqa: ANN401
        shares = self._shares_gpus
        bundle = number if shares else self._num_engines + number
        gpus = self._gpus / 2 if shares else self._gpus
        return self._place(
            ray.remote(LearnerWorker), bundle, gpus, max_concurrency=2, name=_rank_name(number)
        ).remote(self._recipe, number, self._num_ranks)

    def _worker(self, number: int, engine: Engine) -> Any:  # noqa: ANN401
        bundle = len(self._bundles()) - self._num_workers + number
        return self._place(
            ray.remote(RolloutWorker),
            bundle,
            0.0,
            max_concurrency=10_000,
            name=f"rollouts-{number}",
            **_ENDLESS,
        ).remote(self._recipe, engine, number)

    def _note(self, worker: str, number: int) -> None:
        message = f"{worker} {number} died and was started again; what it had begun was repeated"
        self._notices.append(Notice(code="worker_restarted", message=message))

    def _take_notices(self) -> tuple[Notice, ...]:
        taken, self._notices = tuple(self._notices), []
        return taken


def _engine_name(number: int) -> str:
    return f"engine-{number}"


def _rank_name(number: int) -> str:
    return f"learner-{number}"


async def _closed(engine: RemoteEngine) -> None:
    """Stop an engine's own processes; the cluster's end takes what is gone or hangs."""
    with suppress(EngineError, RayActorError, RayTaskError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await engine.close()


async def _left(worker: Any) -> None:  # noqa: ANN401 - a handle of Ray's
    """Let a rollout worker give back what its provider holds; whoever sweeps takes the rest."""
    with suppress(RayActorError, RayTaskError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await worker.close.remote()
