"""The first event of an attempt: `trainer.started`, and what has to be said with it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version

from trainer.attempt import Attempt
from trainer.contract.events import RunWarning, TrainerStarted
from trainer.contract.manifest import config_hash
from trainer.rollouts.prompts import PROMPT_VERSION
from trainer.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What an attempt begins with."""

    step: int = 0
    resumed_from_step: int | None = None
    engine: str
    fallback: str | None = None
    """Why the engine is not vLLM, where that could have been."""
    num_parameters: int
    num_train_tasks: int
    num_eval_tasks: int


def announce(attempt: Attempt, loaded: Loaded) -> None:
    """Say that the attempt has loaded everything and begins."""
    step = loaded.step
    attempt.journal.emit(
        TrainerStarted,
        step=step,
        total_steps=Schedule.of(attempt.spec, start=step).total,
        resumed_from_step=loaded.resumed_from_step,
        config_hash=config_hash(attempt.spec),
        prompt_version=PROMPT_VERSION,
        engine=loaded.engine,
        num_parameters=loaded.num_parameters,
        num_train_tasks=loaded.num_train_tasks,
        num_eval_tasks=loaded.num_eval_tasks,
        versions={
            "python": platform.python_version(),
            "torch": version("torch"),
            "transformers": version("transformers"),
        },
    )
    if loaded.fallback:
        message = f"the torch engine samples, because {loaded.fallback}"
        attempt.journal.emit(RunWarning, step=step, code="engine_fallback", message=message)
