"""Proxies of Ray actors: the trainer's ports over workers in other processes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError

from hillclimb.environment.task import Task
from trainer.engines.admission import UNLIMITED, CacheClaim
from trainer.engines.base import Engine, EngineStats, sum_stats
from trainer.errors import EngineError, LearnerError, PlacementError, TrainerError
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Sample, SamplingParams
from trainer.workers.ray.engine_loads import EngineLoads
from trainer.workers.ray.restarts import IDLE, CumulativeStats, RestartTracker

if TYPE_CHECKING:
    # A rollout worker gets its engine's proxy, and does without torch
    # (`hillclimb.process.lazy_imports`).
    import torch

    from trainer.algo.sequences import Batch, SequenceValues
    from trainer.weights.chunks import WeightChunk, WeightChunks
    from trainer.weights.digests import WeightDigests

HEALTH_TIMEOUT_S = 10.0
"""Deadline of a health check, which the actor answers whatever else it does (seconds)."""
DEATH_REPORT_S = 5.0
"""Wait after a rank's failure for the report of another rank's death that explains it (seconds)."""


def _nothing() -> None: ...


async def _nothing_async() -> None: ...


class RemoteEngine:
    """An `Engine` in another process; picklable, so that rollout workers can have one each."""

    def __init__(
        self, name: str, on_restart: Callable[[], None] = _nothing, *, num_processes: int = 1
    ) -> None:
        """Look up the actor by its name in this job."""
        self._name = name
        self.num_processes = num_processes
        """Number of processes over which the model is split."""
        self._actor: Any = ray.get_actor(name)
        self._tracker = RestartTracker(on_restart)
        self._cumulative, self._version = CumulativeStats(), 0
        self._ready_since = -math.inf
        self._is_roomy = False

    def __reduce__(self) -> tuple[type[RemoteEngine], tuple[str]]:
        """Pickle the name alone; only the process that placed the workers reports restarts.

        By name: a handle among the arguments of an actor is lost when that actor restarts.
        """
        return RemoteEngine, (self._name,)

    @property
    def weight_version(self) -> int:
        """Version passed to the last weight sync."""
        return self._version

    def stats(self) -> EngineStats:
        """Return the counters as of the last reply; none of it blocks this process's event loop."""
        return self._cumulative.total

    @property
    def ready_since(self) -> float:
        """See `Restartable.ready_since`; before the first reply it is -inf."""
        return self._ready_since

    async def health_check(self) -> bool:
        """See `Restartable.health_check`.

        Ray queues calls to a process that it restarts: no answer means that the process is away, or
        hangs as a whole.
        """
        call = self._actor.health_check.options(max_task_retries=0).remote()
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                up_s: float | None = await call
        except (TimeoutError, ActorUnavailableError):
            return False
        except RayActorError as fault:
            raise EngineError(f"a worker process died: {_first_line(fault)}") from fault
        if up_s is not None:
            self._up_for(up_s)
        return up_s is not None

    async def refresh(self) -> None:
        """Fetch the counters.

        Raises:
            EngineError: the process died more often than its restart limit.
        """
        reply = await _answer(self._actor.stats.remote(), EngineError)
        self._note(reply.incarnation, reply.value)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; see `Engine.sample`.

        Raises:
            EngineError: sampling failed, or the process died more often than its restart limit.
        """
        reply = await _answer(
            self._actor.sample.remote(tuple(prompt_ids), params, session, prefix_key), EngineError
        )
        sample: Sample
        sample, stats = reply.value
        self._note(reply.incarnation, stats)
        self._up_for(reply.up_s)
        return sample

    async def admit(self, claim: CacheClaim) -> int:
        """See `AdmitsRollouts.admit`; an engine with room for every rollout is not asked again.

        Raises:
            EngineError: the session was released, or the process died more often than its limit.
        """
        if self._is_roomy:
            return UNLIMITED
        reply = await _answer(self._actor.admit.remote(claim), EngineError)
        self._note(reply.incarnation)
        granted: int = reply.value
        self._is_roomy = granted == UNLIMITED
        return granted

    def release(self, session: str) -> None:
        """Forget a session's cache."""
        self._actor.release.remote(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        reply = await _answer(self._actor.logprobs.remote(tuple(token_ids)), EngineError)
        logprobs: torch.Tensor
        logprobs, stats = reply.value
        self._note(reply.incarnation, stats)
        self._up_for(reply.up_s)
        return logprobs

    async def score(self, token_ids: Sequence[int]) -> None:
        """See `Restartable.score`."""
        reply = await _answer(self._actor.score.remote(tuple(token_ids)), EngineError)
        self._note(reply.incarnation, reply.value)
        self._up_for(reply.up_s)

    async def load_weights_file(self, path: Path, version: int) -> WeightDigests:
        """Sample from the file's weights from now on; see `LoadsFile`."""
        return await self._digests_of(self._actor.load_weights_file.remote(path, version))

    async def init_group(self, address: str, first: int, size: int) -> None:
        """See `LoadsChunks.init_group`."""
        await _answer(self._actor.init_group.remote(address, first, size), EngineError)

    async def start_update(self) -> None:
        """See `LoadsChunks.start_update`."""
        await _answer(self._actor.start_update.remote(), EngineError)

    async def load_chunk(self, chunk: WeightChunk, ipc_handle: bytes | None) -> None:
        """See `LoadsChunks.load_chunk`."""
        await _answer(self._actor.load_chunk.remote(chunk, ipc_handle), EngineError)

    async def finish_update(self, version: int) -> WeightDigests:
        """See `LoadsChunks.finish_update`."""
        return await self._digests_of(self._actor.finish_update.remote(version))

    async def sleep(self, level: int) -> None:
        """See `Sleeps.sleep`."""
        await _answer(self._actor.sleep.remote(level), EngineError)

    async def wake_weights(self) -> None:
        """See `Sleeps.wake_weights`."""
        await _answer(self._actor.wake_weights.remote(), EngineError)

    async def wake_cache(self) -> None:
        """See `Sleeps.wake_cache`."""
        await _answer(self._actor.wake_cache.remote(), EngineError)

    async def close(self) -> None:
        """Stop the engine's own processes."""
        await self._actor.close.remote()

    async def _digests_of(self, call: Awaitable[Any]) -> WeightDigests:
        reply = await _answer(call, EngineError)
        digests: WeightDigests = reply.value
        self._version = digests.version
        self._note(reply.incarnation)
        return digests

    def _up_for(self, up_s: float) -> None:
        self._ready_since = time.monotonic() - up_s

    def _note(self, incarnation: str, stats: EngineStats = IDLE) -> None:
        # Replies of any call may be the first after a restart, and counters restart at 0 then.
        if self._tracker.observe(incarnation):
            self._cumulative.reset()
        self._cumulative.update(stats)


class SpreadEngine:
    """Several copies of an engine as one; a rollout samples from the one that it was given."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)

    @property
    def weight_version(self) -> int:
        """Oldest version that any copy samples with."""
        return min(engine.weight_version for engine in self._engines)

    def stats(self) -> EngineStats:
        """Return the counters of all copies, as of their last replies."""
        return sum_stats([engine.stats() for engine in self._engines])

    def copy(self, number: int) -> Engine:
        """See `HasCopies.copy`."""
        return self._engines[number]

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids` on the first copy; see `Engine.sample`."""
        first = self._engines[0]
        return await first.sample(prompt_ids, params, session=session, prefix_key=prefix_key)

    def release(self, session: str) -> None:
        """Forget a session's cache, if the first copy has one."""
        self._engines[0].release(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence on one copy: all have the same weights."""
        return await self._engines[0].logprobs(token_ids)

    async def close(self) -> None:
        """Do nothing: the worker group that placed the copies closes them."""


class RemoteLearner:
    """A `Learner` whose ranks are in other processes; every call goes to all of them.

    A collective that one rank leaves blocks the others for up to its time-out (half an hour), so a
    failure of any rank ends the call.
    """

    def __init__(self, actors: Sequence[Any], num_parameters: int) -> None:
        self._actors = tuple(actors)
        self.num_parameters = num_parameters
        """Number of parameters of the policy; tied weights count once."""
        self.version = 0
        """Version of the weights: the number of calls of `step` over the whole run."""
        self.before_step: Callable[[], Awaitable[None]] = _nothing_async
        """Called before each step: makes room on GPUs that engines use too."""

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
            LearnerError: a rank died or failed.
        """
        await self.before_step()
        # Stored once for all ranks instead of once per call.
        shared = ray.put(batch)
        answers = await self._call("step", shared)
        metrics: dict[str, float]
        metrics, self.version = answers[0]
        return metrics

    async def take_token_values(self) -> tuple[SequenceValues, ...]:
        """See `Learner.take_token_values`: each rank has those of its own sequences."""
        answers = await self._call("take_token_values")
        return tuple(values for answer in answers for values in answer)

    async def write_weights(self, path: Path) -> WeightDigests:
        """Write the current weights as one safetensors file and return the digests."""
        written: WeightDigests = (await self._call("write_weights", path))[0]
        return written

    async def write_adapter(self, directory: Path) -> WeightDigests:
        """Write the adapter in peft's form and return the digests."""
        written: WeightDigests = (await self._call("write_adapter", directory))[0]
        return written

    async def chunks(self) -> WeightChunks:
        """See `SendsChunks.chunks`."""
        chunks: WeightChunks = (await self._call("chunks"))[0]
        return chunks

    async def address(self) -> str:
        """Return a free `HOST:PORT` of the first rank's machine."""
        address: str = await self._actors[0].address.remote()
        return address

    async def init_group(self, address: str, size: int) -> None:
        """See `SendsChunks.init_group`."""
        await self._call("init_group", address, size)

    async def send(self, chunk: WeightChunk) -> None:
        """See `SendsChunks.send`."""
        await self._call("send", chunk)

    async def export_ipc_handles(self, chunk: WeightChunk) -> list[bytes]:
        """See `SendsChunks.export_ipc_handles`."""
        return await self._call("export_ipc_handles", chunk)

    async def release_ipc_handles(self) -> None:
        """See `SendsChunks.release_ipc_handles`."""
        await self._call("release_ipc_handles")

    async def digests(self) -> WeightDigests:
        """See `SendsChunks.digests`."""
        digests: WeightDigests = (await self._call("digests"))[0]
        return digests

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        logprobs: torch.Tensor = (await self._call("logprobs", tuple(token_ids)))[0]
        return logprobs

    async def park(self) -> None:
        """See `Parks.park`."""
        await self._call("park")

    async def unpark(self) -> None:
        """See `Parks.unpark`."""
        await self._call("unpark")

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy the state to save; see `Learner.begin_save`."""
        self._call_blocking("begin_save", directory)
        return self._finish_save

    def load(self, directory: Path) -> None:
        """Resume from a checkpoint of `begin_save`; see `Learner.load`."""
        self.version = self._call_blocking("load", directory)[0]

    def _finish_save(self) -> None:
        self._call_blocking("finish_save")

    async def _call(self, method: str, *args: Any) -> list[Any]:  # noqa: ANN401
        calls = [
            asyncio.ensure_future(_awaited(getattr(actor, method).remote(*args)))
            for actor in self._actors
        ]
        try:
            _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if waiting:
                # One failed, and the others wait for it in a collective, perhaps for half an hour.
                # Ray reports a death a moment later than the failures that it causes elsewhere:
                # waiting for it makes the error name the cause.
                await asyncio.wait(waiting, timeout=DEATH_REPORT_S)
        finally:
            for call in calls:
                call.cancel()
        return _all_or_first_cause([_outcome(call) for call in calls if call.done()])

    def _call_blocking(self, method: str, *args: Any) -> list[Any]:  # noqa: ANN401
        waiting = [getattr(actor, method).remote(*args) for actor in self._actors]
        order = {call: number for number, call in enumerate(waiting)}
        answers: dict[int, Any] = {}
        while waiting:
            failed = any(isinstance(each, Exception) for each in answers.values())
            ready, waiting = ray.wait(waiting, timeout=DEATH_REPORT_S if failed else None)
            if not ready:
                break
            answers[order[ready[0]]] = _result(ready[0])
        return _all_or_first_cause([answers[number] for number in sorted(answers)])


class RemoteRolloutWorkers:
    """Rollout workers in other processes, used in turn (round robin)."""

    def __init__(
        self, actors: Sequence[Any], on_restart: Callable[[int], None], *, num_engines: int = 1
    ) -> None:
        """`on_restart` is called with the number of a worker that was restarted."""
        self._actors = tuple(actors)
        self._loads = EngineLoads(num_engines)
        self._trackers = [
            RestartTracker(partial(on_restart, number)) for number in range(len(actors))
        ]
        self._next = 0

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        """See `RolloutRunner.run_rollout`.

        Raises:
            TrainerError: the engine failed, or the worker died more often than its restart limit.
        """
        group = (request.step, request.split, request.decoding, task.key)
        with self._loads.place(group, request.n_samples_per_prompt) as engine:
            return await self._run(task, sample_index, replace(request, engine=engine))

    async def _run(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        turn, self._next = self._next, (self._next + 1) % len(self._actors)
        call = self._actors[turn].run_rollout.remote(task, sample_index, request)
        try:
            reply = await _answer(call, PlacementError)
        except asyncio.CancelledError:
            ray.cancel(call)
            raise
        self._trackers[turn].observe(reply.incarnation)
        rollout: Rollout = reply.value
        return rollout


async def _answer(call: Awaitable[Any], error: type[TrainerError]) -> Any:  # noqa: ANN401
    """Await a call; re-raise the other side's exception, and report a dead process as `error`."""
    try:
        return await call
    except (ActorDiedError, ActorUnavailableError, RayActorError) as fault:
        raise error(f"a worker process died: {_first_line(fault)}") from fault
    except RayTaskError as fault:
        raise _cause(fault) from fault


async def _awaited(call: Awaitable[Any]) -> Any:  # noqa: ANN401
    return await call


def _outcome(call: asyncio.Future[Any]) -> Any:  # noqa: ANN401
    if call.cancelled():
        return asyncio.CancelledError()
    return call.exception() or call.result()


def _result(call: Any) -> Any:  # noqa: ANN401
    try:
        return ray.get(call)
    except (RayTaskError, RayActorError) as fault:
        return fault


def _all_or_first_cause(answers: Sequence[Any]) -> list[Any]:
    """Return the results of all ranks, or raise the error that caused the others.

    When one rank dies the others fail at the next collective: the death is the cause. Otherwise a
    `TrainerError` is the cause, where other ranks only lost their partner.
    """
    dead = [each for each in answers if isinstance(each, RayActorError)]
    if dead:
        raise LearnerError(f"a rank of the learner died: {_first_line(dead[0])}") from dead[0]
    failed = [(each, _cause(each)) for each in answers if isinstance(each, RayTaskError)]
    for answer, cause in failed:
        if isinstance(cause, TrainerError):
            raise cause from answer
    for answer, cause in failed:
        raise LearnerError(f"a rank of the learner failed: {cause}") from answer
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return list(answers)


def _cause(fault: RayTaskError) -> Exception:
    cause = fault.cause
    return cause if isinstance(cause, Exception) else fault


def _first_line(fault: BaseException) -> str:
    return str(fault).strip().splitlines()[0]
