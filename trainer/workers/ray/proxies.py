"""The ports of the trainer over workers in other processes."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError

from trainer.algo.sequences import Batch
from trainer.engines.base import Engine, EngineStats, sum_stats
from trainer.errors import EngineError, LearnerError, PlacementError, TrainerError
from trainer.placement.lives import IDLE, Counters, Lives
from trainer.rollouts.wave import Rollout, Wave
from trainer.types import Sample, SamplingParams, Task
from trainer.weights.manifest import Manifest
from trainer.weights.pieces import Piece, Pieces

LOOK_S = 10.0
"""How long a process may take to say that it is there, which it does in a thread of its own."""
DEATH_S = 5.0
"""How long a rank's failure may be younger than the death of another that explains it."""


def _nothing() -> None: ...


class RemoteEngine:
    """An `Engine` in another process; picklable, so that rollout workers can have one each."""

    def __init__(
        self, name: str, note_restart: Callable[[], None] = _nothing, *, num_processes: int = 1
    ) -> None:
        """Find the actor by its name in this job."""
        self._name = name
        self.num_processes = num_processes
        """How many processes hold the model together."""
        self._actor: Any = ray.get_actor(name)
        self._lives = Lives(note_restart)
        self._counters, self._version = Counters(), 0
        self._ready_since = -math.inf

    def __reduce__(self) -> tuple[type[RemoteEngine], tuple[str]]:
        """Another process gets the same engine; restarts are noted where the crew was placed.

        By name: a handle among the arguments of an actor is lost when that one starts again.
        """
        return RemoteEngine, (self._name,)

    @property
    def weight_version(self) -> int:
        """The version given with the last `take_file`."""
        return self._version

    def stats(self) -> EngineStats:
        """Counters as of the last answer; nothing of it keeps this process's loop from running."""
        return self._counters.total

    @property
    def ready_since(self) -> float:
        """See `Restarts.ready_since`; before the first answer it always was."""
        return self._ready_since

    async def look(self) -> bool:
        """See `Restarts.look`.

        Ray keeps what is asked of a process that it starts: no answer means that it is away, or
        that it stands still as a whole.
        """
        call = self._actor.look.options(max_task_retries=0).remote()
        try:
            async with asyncio.timeout(LOOK_S):
                up_s: float | None = await call
        except (TimeoutError, ActorUnavailableError):
            return False
        except RayActorError as fault:
            raise EngineError(f"a worker process died: {_first_line(fault)}") from fault
        if up_s is not None:
            self._up_for(up_s)
        return up_s is not None

    async def refresh(self) -> None:
        """Ask for the counters.

        Raises:
            EngineError: the process died more often than it is started again.
        """
        reply = await _answer(self._actor.stats.remote(), EngineError)
        self._note(reply.life, reply.value)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; see `Engine.sample`.

        Raises:
            EngineError: sampling failed, or the process died more often than it is started again.
        """
        reply = await _answer(
            self._actor.sample.remote(tuple(prompt_ids), params, session, prefix_key), EngineError
        )
        sample: Sample
        sample, stats = reply.value
        self._note(reply.life, stats)
        self._up_for(reply.up_s)
        return sample

    def release(self, session: str) -> None:
        """Forget a session's cache."""
        self._actor.release.remote(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        reply = await _answer(self._actor.logprobs.remote(tuple(token_ids)), EngineError)
        logprobs: torch.Tensor
        logprobs, stats = reply.value
        self._note(reply.life, stats)
        self._up_for(reply.up_s)
        return logprobs

    async def take_file(self, path: Path, version: int) -> Manifest:
        """Draw from the file's weights from now on; see `TakesFile`."""
        return await self._took(self._actor.take_file.remote(path, version))

    async def meet(self, address: str, first: int, size: int) -> None:
        """See `TakesPieces.meet`."""
        await _answer(self._actor.meet.remote(address, first, size), EngineError)

    async def begin_update(self) -> None:
        """See `TakesPieces.begin_update`."""
        await _answer(self._actor.begin_update.remote(), EngineError)

    async def take_piece(self, piece: Piece, lent: bytes | None) -> None:
        """See `TakesPieces.take_piece`."""
        await _answer(self._actor.take_piece.remote(piece, lent), EngineError)

    async def finish_update(self, version: int) -> Manifest:
        """See `TakesPieces.finish_update`."""
        return await self._took(self._actor.finish_update.remote(version))

    async def close(self) -> None:
        """Stop the engine's own processes."""
        await self._actor.close.remote()

    async def _took(self, call: Awaitable[Any]) -> Manifest:
        reply = await _answer(call, EngineError)
        held: Manifest = reply.value
        self._version = held.version
        self._note(reply.life)
        return held

    def _up_for(self, up_s: float) -> None:
        self._ready_since = time.monotonic() - up_s

    def _note(self, life: str, stats: EngineStats = IDLE) -> None:
        if self._lives.seen(life):
            self._counters.begin_life()
        self._counters.told(stats)


class SpreadEngine:
    """Several copies of an engine as one; rollouts of a group share a prompt and stay together."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)
        self._sessions: dict[str, Engine] = {}

    @property
    def weight_version(self) -> int:
        """The oldest version that any copy draws with."""
        return min(engine.weight_version for engine in self._engines)

    def stats(self) -> EngineStats:
        """Counters of all copies, as of their last answers."""
        return sum_stats([engine.stats() for engine in self._engines])

    def copy_for(self, session: str, prefix_key: str) -> Engine:
        """See `HasCopies.copy_for`."""
        digest = hashlib.sha256((prefix_key or session).encode()).digest()
        return self._engines[int.from_bytes(digest[:4], "big") % len(self._engines)]

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids` on the group's copy; see `Engine.sample`."""
        engine = self.copy_for(session, prefix_key)
        self._sessions[session] = engine
        return await engine.sample(prompt_ids, params, session=session, prefix_key=prefix_key)

    def release(self, session: str) -> None:
        """Forget a session's cache, if it has one."""
        engine = self._sessions.pop(session, None)
        if engine is not None:
            engine.release(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence on one copy: all have the same weights."""
        return await self._engines[0].logprobs(token_ids)

    async def close(self) -> None:
        """Do nothing: who placed the copies ends them."""


class RemoteLearner:
    """A `Learner` whose ranks are in other processes; all of them get every call."""

    def __init__(self, actors: Sequence[Any], num_parameters: int) -> None:
        self._actors = tuple(actors)
        self.num_parameters = num_parameters
        """How many parameters the policy has; tied weights count once."""
        self.version = 0
        """How many times `step` has run over the life of the run."""

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
            LearnerError: a rank died or failed.
        """
        shared = ray.put(batch)
        answers = await self._ask("step", shared)
        metrics: dict[str, float]
        metrics, self.version = answers[0]
        return metrics

    async def write_weights(self, path: Path) -> Manifest:
        """Write the current weights as one safetensors file and return what is in it."""
        written: Manifest = (await self._ask("write_weights", path))[0]
        return written

    async def write_adapter(self, directory: Path) -> Manifest:
        """Write the adapter in peft's form and return what is in it."""
        written: Manifest = (await self._ask("write_adapter", directory))[0]
        return written

    async def pieces(self) -> Pieces:
        """See `SendsPieces.pieces`."""
        pieces: Pieces = (await self._ask("pieces"))[0]
        return pieces

    async def address(self) -> str:
        """Where the first rank can be met."""
        address: str = await self._actors[0].address.remote()
        return address

    async def meet(self, address: str, size: int) -> None:
        """See `SendsPieces.meet`."""
        await self._ask("meet", address, size)

    async def send(self, piece: Piece) -> None:
        """See `SendsPieces.send`."""
        await self._ask("send", piece)

    async def lend(self, piece: Piece) -> list[bytes]:
        """See `SendsPieces.lend`."""
        return await self._ask("lend", piece)

    async def take_back(self) -> None:
        """See `SendsPieces.take_back`."""
        await self._ask("take_back")

    async def sent(self) -> Manifest:
        """See `SendsPieces.sent`."""
        sent: Manifest = (await self._ask("sent"))[0]
        return sent

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        logprobs: torch.Tensor = (await self._ask("logprobs", tuple(token_ids)))[0]
        return logprobs

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy what there is to save; see `Learner.begin_save`."""
        self._ask_now("begin_save", directory)
        return self._finish_save

    def load(self, directory: Path) -> None:
        """Go on from what `begin_save` wrote; see `Learner.load`."""
        self.version = self._ask_now("load", directory)[0]

    def _finish_save(self) -> None:
        self._ask_now("finish_save")

    async def _ask(self, method: str, *args: Any) -> list[Any]:  # noqa: ANN401
        calls = [
            asyncio.ensure_future(_awaited(getattr(actor, method).remote(*args)))
            for actor in self._actors
        ]
        try:
            _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if waiting:
                # One failed, and the others wait for it, perhaps for half an hour. A death is seen
                # a moment later than what it does to others.
                await asyncio.wait(waiting, timeout=DEATH_S)
        finally:
            for call in calls:
                call.cancel()
        return _all_or_first_cause([_outcome(call) for call in calls if call.done()])

    def _ask_now(self, method: str, *args: Any) -> list[Any]:  # noqa: ANN401
        waiting = [getattr(actor, method).remote(*args) for actor in self._actors]
        order = {call: number for number, call in enumerate(waiting)}
        answers: dict[int, Any] = {}
        while waiting:
            failed = any(isinstance(each, Exception) for each in answers.values())
            ready, waiting = ray.wait(waiting, timeout=DEATH_S if failed else None)
            if not ready:
                break
            answers[order[ready[0]]] = _got(ready[0])
        return _all_or_first_cause([answers[number] for number in sorted(answers)])


class RemoteRolls:
    """Rollouts in other processes, dealt out in turn."""

    def __init__(self, actors: Sequence[Any], note_restart: Callable[[int], None]) -> None:
        """`note_restart` is given the number of a worker that was started again."""
        self._actors = tuple(actors)
        self._lives = [Lives(partial(note_restart, number)) for number in range(len(actors))]
        self._next = 0

    async def roll(self, task: Task, sample_index: int, wave: Wave) -> Rollout:
        """See `Rolls.roll`.

        Raises:
            TrainerError: the engine failed, or the worker died more often than it is started again.
        """
        turn, self._next = self._next, (self._next + 1) % len(self._actors)
        call = self._actors[turn].roll.remote(task, sample_index, wave)
        try:
            reply = await _answer(call, PlacementError)
        except asyncio.CancelledError:
            ray.cancel(call)
            raise
        self._lives[turn].seen(reply.life)
        rollout: Rollout = reply.value
        return rollout


async def _answer(call: Awaitable[Any], error: type[TrainerError]) -> Any:  # noqa: ANN401
    """Await a call; what the other side raised comes out as it is, a dead process as `error`."""
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


def _got(call: Any) -> Any:  # noqa: ANN401
    try:
        return ray.get(call)
    except (RayTaskError, RayActorError) as fault:
        return fault


def _all_or_first_cause(answers: Sequence[Any]) -> list[Any]:
    """Return the answers of all ranks, or raise what explains why there are none.

    When one rank dies the others fail at the next collective: the death is the cause. So is an
    error that has a name, where others only lost their partner.
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
