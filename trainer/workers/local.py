"""A crew whose workers are all in the trainer's process."""

from __future__ import annotations

from functools import partial

import torch

from trainer.crew import Crew, Samplers, weight_sync
from trainer.engines.base import Engine
from trainer.errors import SpecError
from trainer.learners.inline import InlineLearner
from trainer.models import load_policy
from trainer.recipe import Recipe
from trainer.rollouts.roller import Roller
from trainer.weights.base import WeightSync
from trainer.weights.file import TakesFile
from trainer.weights.inline import InlineSync, TakesWeights


def inline_crew(recipe: Recipe) -> Crew:
    """Make all workers in this process.

    Raises:
        SpecError: the spec asks for what this process cannot do.
        ModelUnavailable: the model cannot be loaded.
        EngineError: the engine did not start.
    """
    if torch.cuda.is_available():
        raise SpecError(
            "placement.type inline, which a deterministic run has, trains on the processor, and"
            " this machine has a GPU: hide the GPU (CUDA_VISIBLE_DEVICES=), or set it to ray (with"
            " Ray installed) in a run that is not deterministic"
        )
    learner = InlineLearner(
        load_policy(recipe.model_dir, recipe.spec.model), recipe.learner_options()
    )
    chosen = recipe.make_engine(lambda: learner.publish().weights)
    engine = chosen.engine
    weights: WeightSync
    if isinstance(engine, TakesWeights):
        weights = InlineSync(learner, engine)
    elif isinstance(engine, TakesFile):
        weights = weight_sync(recipe, learner, [engine], keeps=False)
    else:
        raise TypeError(f"{chosen.name} has no way in for weights")
    roller = recipe.make_roller(engine)
    return Crew(
        learner=learner,
        engines=(engine,),
        weights=weights,
        rolls=roller,
        engine_name=chosen.name,
        fallback=chosen.fallback,
        close=partial(_close, roller, engine),
    )


def inline_samplers(recipe: Recipe) -> Samplers:
    """Make engine and rollouts in this process; the engine's weights stay those of the recipe.

    Raises:
        SpecError, ModelUnavailable, EngineError: as `inline_crew`.
    """
    chosen = recipe.make_engine()
    roller = recipe.make_roller(chosen.engine)
    return Samplers(
        engines=(chosen.engine,),
        rolls=roller,
        engine_name=chosen.name,
        fallback=chosen.fallback,
        close=partial(_close, roller, chosen.engine),
    )


async def _close(roller: Roller, engine: Engine) -> None:
    try:
        await roller.close()
    finally:
        await engine.close()
