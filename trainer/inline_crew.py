"""A crew whose workers are all in the trainer's process."""

from __future__ import annotations

from trainer.crew import Crew, weight_sync
from trainer.learners.inline import InlineLearner
from trainer.models import load_policy
from trainer.recipe import Recipe
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

    async def close() -> None:
        try:
            await roller.close()
        finally:
            await engine.close()

    return Crew(
        learner=learner,
        engines=(engine,),
        weights=weights,
        rolls=roller,
        engine_name=chosen.name,
        fallback=chosen.fallback,
        close=close,
    )
