"""Rollout worker: runs a rollout, retries it after an infra error, and turns errors into data.

No exception of an environment passes this file: a `RolloutError`, or an unexpected one, ends one
try, which is repeated a few times. Only `TrainerError` and cancellation propagate; `Episode` wraps
every failure of the engine in the former.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from hillclimb.environment.base import (
    AsyncCloseable,
    Env,
    EnvProvider,
    Grade,
    LimitsConcurrency,
    ReportsMetrics,
)
from hillclimb.environment.errors import (
    EngineRestarted,
    EnvAtCapacity,
    RolloutError,
    VerifierUnavailable,
)
from hillclimb.environment.task import Task
from hillclimb.process.redactor import NOTHING_SECRET, Redactor
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from trainer.engines.base import Engine, HasCopies
from trainer.errors import TrainerError
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.episode import Episode, PolicyParts, TurnSampling
from trainer.rollouts.limits.budget import RolloutClock, TimeBudget
from trainer.rollouts.limits.limits import limits_for, without_deadlines
from trainer.rollouts.limits.liveness import wait_until_ready
from trainer.rollouts.operation import EnvOperation
from trainer.rollouts.records.cause import cause_in_words
from trainer.rollouts.records.skipped import rollout_id, skipped_rollout
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.styles.base import PromptStyle
from trainer.rollouts.styles.own import OWN_STYLE
from trainer.rollouts.transcript import RolloutIdentity, Transcript

CLOSE_TIMEOUT_S = 10.0
_UNCHARGED_ERRORS = (EnvAtCapacity.code, EngineRestarted.code)
"""Errors that nobody is charged for: the try is repeated without limit, its time not counted."""
NOT_STARTED = "the time limit for starting it had passed"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutParts:
    """Parts that all rollouts of a run share."""

    engine: Engine
    chat: Chat
    provider: EnvProvider
    environment: EnvironmentSpec
    rollout: RolloutSpec
    seed: int
    attempt: int
    style: PromptStyle = OWN_STYLE
    redactor: Redactor = NOTHING_SECRET
    """Redacts the causes of missing grades, which quote servers."""
    has_deadlines: bool = True
    """False removes all deadlines, so that no clock decides an outcome (deterministic runs)."""
    number: int = 0
    """Number of the rollout worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """One try at a rollout; `error` is the code of the infra error that ended it."""

    outcome: Outcome
    stop: StopReason
    transcript: Transcript
    error: str | None = None
    is_permanent: bool = False
    """Another try would fail like this one."""


class RolloutWorker:
    """Runs rollouts in this process."""

    def __init__(self, parts: RolloutParts) -> None:
        self._parts = parts

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        """Run one sample of a task, retried after infra errors while retries and time are left."""
        parts = self._parts
        engine = copy_of(parts.engine, request.engine)
        limits = limits_for(task.env_key, parts.environment, parts.rollout)
        clock = RolloutClock(limits if parts.has_deadlines else without_deadlines(limits))
        measures: dict[str, float] = {}
        errors: list[str] = []
        operations: list[EnvOperation] = []
        num_void = 0
        while True:
            queued_s, begun_s = clock.queued_s, clock.elapsed_s
            async with self._slot(task, clock):
                if request.is_over and not errors:
                    skipped = skipped_rollout(
                        task, sample_index, request, attempt=parts.attempt, why=NOT_STARTED
                    )
                    # Operations of a try that was void because the engine restarted.
                    return replace(skipped, operations=tuple(operations))
                _add(measures, {"slot_wait_s": clock.queued_s - queued_s})
                draw = self._draw(task, sample_index, request, retry=len(errors), num_void=num_void)
                result = await self._try(task, draw, clock, measures, engine)
            if result.error in _UNCHARGED_ERRORS:
                # `EnvAtCapacity` ends a try before any operation, so there are none to record.
                if result.error == EngineRestarted.code:
                    operations += result.transcript.operations
                    await wait_until_ready(engine)
                clock.discount_since(begun_s)
                num_void += 1
                continue
            retries = len(errors)
            operations += result.transcript.operations
            errors += [result.error] if result.error else []
            is_last = result.is_permanent or retries >= parts.environment.max_infra_retries
            if result.error is None or is_last:
                break
            clock.count_as_lost()
            if clock.left_s <= 0.0:
                break
        identity = RolloutIdentity(
            rollout_id=rollout_id(parts.attempt, request, task, sample_index),
            sample_index=sample_index,
            num_infra_retries=retries,
        )
        return Rollout(
            trajectory=result.transcript.trajectory(task, result.outcome, result.stop, identity),
            num_turns=result.transcript.num_turns,
            duration_s=clock.elapsed_s,
            infra_errors=tuple(errors),
            measures=measures if isinstance(self._parts.provider, LimitsConcurrency) else {},
            operations=tuple(operations),
            num_tools=result.transcript.num_tools,
            began_at=clock.began_at,
            spans=tuple(clock.spans),
            worker=parts.number,
            engine=request.engine,
        )

    async def close(self) -> None:
        """Release the provider's resources; a failure is only logged."""
        provider = self._parts.provider
        if isinstance(provider, AsyncCloseable):
            try:
                await provider.close()
            except Exception:  # noqa: BLE001 - a sweep deletes the remaining instances by tag
                _log.exception("closing the environments' provider")

    @asynccontextmanager
    async def _slot(self, task: Task, clock: RolloutClock) -> AsyncIterator[None]:
        """Hold a slot for an episode, if the provider limits them; the wait counts as queueing."""
        async with AsyncExitStack() as stack:
            if isinstance(self._parts.provider, LimitsConcurrency):
                with clock.paused():
                    await stack.enter_async_context(self._parts.provider.slot(task))
            yield

    async def _try(
        self,
        task: Task,
        draw: TurnSampling,
        clock: RolloutClock,
        measures: dict[str, float],
        engine: Engine,
    ) -> _Try:
        """Run one try: errors of the environment are in the result, its metrics in `measures`.

        Raises:
            TrainerError: the engine failed, or the task cannot be done.
        """
        transcript = Transcript()
        env: Env | None = None
        try:
            env = self._parts.provider.make(task)
            policy = PolicyParts(engine=engine, chat=self._parts.chat, style=self._parts.style)
            budget = TimeBudget(
                clock, lambda: engine.stats().loop_blocked_s, operations=transcript.operations
            )
            episode = Episode(task, env, budget, policy, transcript)
            grade, stop = await episode.run(draw)
            return _Try(outcome=self._graded(grade, draw), stop=stop, transcript=transcript)
        except TrainerError:
            raise
        except VerifierUnavailable as error:
            stop = transcript.stop_reason or StopReason.INFRA_ERROR
            return self._failed(error, transcript, draw, OutcomeStatus.UNGRADED, stop)
        except RolloutError as error:
            return self._failed(error, transcript, draw)
        except Exception as error:  # noqa: BLE001 - the rollout edge: faults become data here
            _log.exception("rollout %s", draw.session)
            code = f"unexpected_{type(error).__name__}"
            outcome = Outcome(
                status=OutcomeStatus.INFRA_ERROR, reason=code, detail=self._explain(str(error))
            )
            return _Try(
                outcome=outcome, stop=StopReason.INFRA_ERROR, transcript=transcript, error=code
            )
        finally:
            engine.release(draw.session)
            if env is not None:
                await _close(env, draw.session)
                _add(measures, _measures(env))

    def _graded(self, grade: Grade, draw: TurnSampling) -> Outcome:
        detail = self._explain(grade.detail)
        status, reason = OutcomeStatus.GRADED, grade.reason
        if grade.score is None:
            status, reason = OutcomeStatus.UNGRADED, reason or "the verifier returned no score"
            _log.info("rollout %s: %s: %s", draw.session, reason, detail)
        return Outcome(
            status=status,
            score=grade.score,
            reason=reason,
            detail=detail,
            verifier_execution_id=grade.verifier_execution_id,
        )

    def _failed(
        self,
        error: RolloutError,
        transcript: Transcript,
        draw: TurnSampling,
        status: OutcomeStatus = OutcomeStatus.INFRA_ERROR,
        stop: StopReason = StopReason.INFRA_ERROR,
    ) -> _Try:
        detail = self._explain(str(error))
        _log.info("rollout %s: %s: %s", draw.session, error.code, detail)
        return _Try(
            outcome=Outcome(status=status, reason=error.code, detail=detail),
            stop=stop,
            transcript=transcript,
            error=error.code,
            is_permanent=error.is_permanent,
        )

    def _explain(self, text: str | None) -> str | None:
        return cause_in_words(text, self._parts.redactor)

    def _draw(
        self, task: Task, sample_index: int, request: RolloutRequest, *, retry: int, num_void: int
    ) -> TurnSampling:
        """Return the sampling parameters of a try, with its own session on the engine."""
        void = f"+{num_void}" if num_void else ""
        place = (self._parts.seed, request.step, request.split, request.decoding, task.key)
        return TurnSampling(
            temperature=request.temperatures[task.env_key],
            top_p=request.top_p,
            seed=derive_seed(*place, sample_index, retry),
            session=f"{rollout_id(self._parts.attempt, request, task, sample_index)}/{retry}{void}",
            prefix_key=f"{request.step}/{request.split}/{request.decoding}/{task.key}"
            if request.n_samples_per_prompt > 1
            else "",
            returns_routes=request.returns_routes,
        )


def copy_of(engine: Engine, number: int) -> Engine:
    """Return the copy of the engine that a request names; an engine without copies is the one."""
    return engine.copy(number) if isinstance(engine, HasCopies) else engine


def _measures(env: Env) -> Mapping[str, float]:
    return env.measures() if isinstance(env, ReportsMetrics) else {}


def _add(measures: dict[str, float], more: Mapping[str, float]) -> None:
    """Add a try's counts and seconds; any other value, such as a limit, replaces the earlier."""
    for name, value in more.items():
        sums = name.startswith("num_") or name.endswith("_s")
        measures[name] = measures.get(name, 0.0) + value if sums else value


async def _close(env: Env, session: str) -> None:
    """Close an environment within a time limit; a failure is only logged."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await env.close()
    except Exception:  # noqa: BLE001 - the rollout edge: the outcome is known already
        _log.exception("closing the environment of %s", session)
