"""From a spec to a probe: the engines and rollouts of a training run, without its learner."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer.announcing import Loaded, announce
from trainer.attempt import Attempt
from trainer.checkpoints import Saved, fetch
from trainer.contract.rundir import MODEL, RESUME
from trainer.contract.spec import RunSpec
from trainer.crew import Samplers
from trainer.data.sets import some_train_tasks
from trainer.determinism import make_deterministic
from trainer.envs.base import EnvProvider
from trainer.loading import importing
from trainer.probing.prober import ProbeParts, Prober
from trainer.prompting import PromptReport
from trainer.recipe import Recipe
from trainer.rollouts.collect import Collector
from trainer.sources import resolve_source
from trainer.types import Task
from trainer.watchdog import Watchdog
from trainer.waves import Waves
from trainer.wiring import check_lengths, is_inline, refuse_gpu

_POLICY = "policy"
"""Where a checkpoint has its Hugging Face directory."""


def build_prober(attempt: Attempt, provider: EnvProvider | None = None) -> Prober:
    """Load model and tasks, say `trainer.started`, and return the probe.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        ModelUnavailable, SpecError, DataError, CheckpointError: as `build_trainer`.
    """
    spec = attempt.spec
    if spec.deterministic:
        make_deterministic(spec.schedule.seed)
    refuse_gpu(spec, has_gpu=torch.cuda.is_available())
    model_dir, saved = _policy(attempt)
    with importing():
        from trainer.models import count_parameters, load_config  # noqa: PLC0415 - trainer.loading
    config = load_config(model_dir, spec.model)
    check_lengths(spec, config.max_position_embeddings)
    tasks = some_train_tasks(spec, attempt.store, spec.probe.tasks_per_env)
    recipe = Recipe(
        spec=_without_learner(spec),
        model_dir=model_dir,
        vocab_size=config.vocab_size,
        attempt_dir=attempt.dir.path,
        attempt=attempt.dir.attempt,
        provider=provider,
    )
    samplers = _gather_samplers(recipe)
    try:
        step = saved.manifest.step if saved else 0
        loaded = Loaded(
            step=step,
            resumed_from_step=step if saved else None,
            engine=samplers.engine_name,
            fallback=samplers.fallback,
            num_parameters=count_parameters(config),
            num_train_tasks=len(tasks),
            num_eval_tasks=0,
        )
        announce(attempt, loaded)
        return Prober(_parts(attempt, samplers, tasks, recipe), step=step)
    except BaseException:
        samplers.abandon()
        raise


def _policy(attempt: Attempt) -> tuple[Path, Saved | None]:
    """Return the directory of the policy to probe, brought here if it is in a checkpoint."""
    if attempt.resume_from is None:
        return resolve_source(attempt.spec.model.source, attempt.dir.path / MODEL), None
    where = attempt.dir.path / RESUME
    saved = fetch(attempt.store, attempt.resume_from, where, only=f"{_POLICY}/")
    return where / _POLICY, saved


def _without_learner(spec: RunSpec) -> RunSpec:
    """Return the spec for engines that keep the weights they start with."""
    engine = spec.engine.model_copy(update={"weight_transport": "auto"})
    learner = spec.learner.model_copy(update={"lora": None})
    return spec.model_copy(update={"engine": engine, "learner": learner})


def _gather_samplers(recipe: Recipe) -> Samplers:
    """Put the workers where the spec wants them."""
    if is_inline(recipe.spec):
        with importing():
            from trainer.inline_crew import inline_samplers  # noqa: PLC0415 - see trainer.loading
        return inline_samplers(recipe)
    with importing():
        # Not installed everywhere.
        from trainer.placement.crew import ray_samplers  # noqa: PLC0415

    return ray_samplers(recipe)


def _parts(
    attempt: Attempt, samplers: Samplers, tasks: tuple[Task, ...], recipe: Recipe
) -> ProbeParts:
    spec = attempt.spec
    waves = Waves(
        collector=Collector(
            samplers.rolls, max_concurrent_rollouts=spec.environment.max_concurrent_rollouts
        ),
        journal=attempt.journal,
        stop=attempt.stop,
        store=attempt.store,
        attempt_dir=attempt.dir,
        # A probe is there to say which environments fail; it does not end because one does.
        max_infra_error_rate=1.0,
    )
    watchdog = Watchdog(
        schedule=spec.schedule,
        journal=attempt.journal,
        stop=attempt.stop,
        num_drawn=lambda: samplers.engine_stats().num_sampled_tokens,
        refresh=samplers.refresh,
        on_blocked=attempt.on_blocked,
        keeps="what it found by then is reported",
    )
    return ProbeParts(
        spec=spec,
        tasks=tasks,
        samplers=samplers,
        waves=waves,
        journal=attempt.journal,
        clock=attempt.clock,
        watchdog=watchdog,
        prompts=PromptReport(
            spec=spec,
            tasks=tasks,
            model_dir=recipe.model_dir,
            vocab_size=recipe.vocab_size,
            provider=recipe.provider,
            journal=attempt.journal,
            store=attempt.store,
            attempt_dir=attempt.dir,
        ),
    )
