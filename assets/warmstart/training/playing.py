"""Letting a model play tasks with the product's own engine and rollout, to measure a warm start.

Beside the real environment a shadow one gets every call with the planted habit taken out. Its
state tells what the model would score without the habit, everything else as it chose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from transformers import Qwen3ForCausalLM

from assets.warmstart.text.demonstrations import MAX_TURNS, goal_of
from assets.warmstart.text.habits import HABITS, Flaw, repaired_call
from hillclimb.environment.base import Grade, ToolCall, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.protocol.outcomes import StopReason
from trainer.engines.torch.engine import TorchEngine
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.episode import Episode, PolicyParts, TurnSampling
from trainer.rollouts.limits.budget import RolloutClock, TimeBudget
from trainer.rollouts.limits.limits import RolloutLimits
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.transcript import Transcript

LIMITS = RolloutLimits(
    max_turns=MAX_TURNS,
    max_input_length=880,
    max_generate_length=96,
    max_sequence_length=1024,
    call_timeout_s=60.0,
    reset_timeout_s=60.0,
    verifier_timeout_s=60.0,
    turn_timeout_s=3600.0,
    trajectory_timeout_s=3600.0,
    infra_retry_allowance_s=0.0,
)
"""The defaults of the run spec, with time for a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How one task went. `passed_without_habit`: had only the planted habit been taken out."""

    task: Task
    passed: bool
    passed_without_habit: bool
    said: tuple[str, ...]
    """The model's turns as text."""


class ShadowedEnv:
    """An `Env` that repeats every call on a second copy of the app, without the habit."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._real = MinifleetEnv(APPS[task.env_key], task)
        self._shadow = MinifleetEnv(APPS[task.env_key], task)

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Start both copies."""
        await self._shadow.reset()
        return await self._real.reset()

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Answer from the real copy."""
        call = ToolCall(name=name, arguments=arguments)
        repaired = repaired_call(HABITS[self._task.env_key].flaw, call, goal_of(self._task))
        await self._shadow.call(repaired.name, repaired.arguments)
        return await self._real.call(name, arguments)

    async def score(self) -> Grade:
        """Grade the real copy."""
        return await self._real.score()

    async def shadow_score(self) -> float:
        """Grade the shadow copy, after paying where the habit is not to pay."""
        if HABITS[self._task.env_key].flaw is Flaw.NEVER_PAYS:
            user, card = self._task.env_variables["LOGGED_IN_USER"], goal_of(self._task)["card"]
            holds = await self._shadow.call("list_holds", {"fan": user})
            hold = holds.text.partition('"hold":"')[2].partition('"')[0]
            await self._shadow.call("pay_hold", {"hold": hold, "card": card})
        return (await self._shadow.score()).score or 0.0

    async def close(self) -> None:
        """Nothing is held."""


async def play(
    model: Qwen3ForCausalLM, chat: Chat, tasks: Sequence[Task], *, temperature: float, seed: int
) -> list[Played]:
    """Play each task once, all of them at the same time; temperature 0 is greedy."""
    engine = TorchEngine(model.config, model.state_dict())

    async def one(task: Task) -> Played:
        env = ShadowedEnv(task)
        transcript = Transcript()
        budget = TimeBudget(RolloutClock(LIMITS), lambda: engine.stats().loop_blocked_s)
        episode = Episode(task, env, budget, PolicyParts(engine=engine, chat=chat), transcript)
        draw = TurnSampling(
            temperature=temperature,
            seed=derive_seed(seed, task.key),
            session=task.key,
            prefix_key=task.key,
        )
        outcome, stop = await episode.run(draw)
        engine.release(task.key)
        endless = HABITS[task.env_key].flaw in (Flaw.NEVER_DONE, Flaw.REPEATS)
        came_to_an_end = stop is StopReason.DONE or (endless and stop is StopReason.MAX_TURNS)
        return Played(
            task=task,
            passed=outcome.score == 1.0,
            passed_without_habit=came_to_an_end and await env.shadow_score() == 1.0,
            said=tuple(turn.response for turn in transcript.turns),
        )

    try:
        return list(await asyncio.gather(*(one(task) for task in tasks)))
    finally:
        await engine.close()
