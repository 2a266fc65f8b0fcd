"""A crew whose engine and learner are on a Tinker server; rollouts are in the trainer's process."""

from __future__ import annotations

import asyncio

from trainer.crew import Crew, Samplers
from trainer.engines.canary import BFLOAT16_TOLERANCE
from trainer.errors import ModelUnavailable, SpecError
from trainer.models import count_parameters, load_config
from trainer.recipe import Recipe
from trainer.rollouts.roller import Roller
from trainer.tinker.account import account_of
from trainer.tinker.engine import TinkerEngine
from trainer.tinker.learner import TinkerLearner, TinkerOptions
from trainer.tinker.service import TinkerService, Wanted
from trainer.tinker.sync import TinkerSync

NAME = "tinker"
"""As `trainer.started` reports the engine."""
CANARY_TOLERANCE = BFLOAT16_TOLERANCE
"""A server does not say in which precision its two sides compute."""


def tinker_crew(recipe: Recipe) -> Crew:
    """Open a session, make an adapter on the server, and what rolls out on it.

    Raises:
        SpecError: there is no key, or the server has not what the spec asks for.
        LearnerError: the server does not answer.
    """
    service = _open(recipe)
    try:
        learner = TinkerLearner(service, _options(recipe))
        engine = _engine(recipe, service)
        samplers = _samplers(recipe, service, engine)
    except BaseException:
        service.close()
        raise
    return Crew(
        learner=learner,
        engines=samplers.engines,
        weights=TinkerSync(learner, engine),
        rolls=samplers.rolls,
        engine_name=samplers.engine_name,
        fallback=samplers.fallback,
        close=samplers.close,
        abandon=samplers.abandon,
        canary_tolerance=CANARY_TOLERANCE,
        keep_only=learner.keep_only,
    )


def _open(recipe: Recipe) -> TinkerService:
    spec = recipe.spec
    tinker = spec.backend.tinker_server
    if tinker is None:
        raise SpecError("backend.type is not tinker")
    wanted = Wanted(
        base_model=tinker.model_for(spec.model.source),
        tinker=tinker,
        max_sequence_length=spec.rollout.max_sequence_length,
        seed=spec.schedule.seed,
        name=f"{recipe.attempt_dir.parent.name}-a{recipe.attempt}",
    )
    return TinkerService(account_of(tinker, experimental=spec.experimental), wanted)


def _options(recipe: Recipe) -> TinkerOptions:
    spec = recipe.spec
    return TinkerOptions(
        algorithm=spec.algorithm,
        optimizer=spec.optimizer,
        lr_warmup_steps=spec.schedule.lr_warmup_steps,
        total_steps=spec.schedule.total_steps,
        max_sequence_length=spec.rollout.max_sequence_length,
        vocab_size=recipe.vocab_size,
        num_parameters=_num_parameters(recipe),
    )


def _num_parameters(recipe: Recipe) -> int:
    """Of the base model, where it is one that we could compute ourselves; else 0."""
    try:
        return count_parameters(load_config(recipe.model_dir, recipe.spec.model))
    except (SpecError, ModelUnavailable):
        return 0


def _engine(recipe: Recipe, service: TinkerService) -> TinkerEngine:
    return TinkerEngine(
        timeout_s=service.timeout_s, max_length=recipe.spec.rollout.max_sequence_length
    )


def _samplers(recipe: Recipe, service: TinkerService, engine: TinkerEngine) -> Samplers:
    roller = recipe.make_roller(engine)

    async def close() -> None:
        await _close(roller, engine, service)

    return Samplers(
        engines=(engine,),
        rolls=roller,
        engine_name=NAME,
        fallback=None,
        close=close,
        abandon=service.close,
    )


async def _close(roller: Roller, engine: TinkerEngine, service: TinkerService) -> None:
    try:
        await roller.close()
    finally:
        await engine.close()
        await asyncio.to_thread(service.close)
