"""From a spec to the parts of a run: what stands behind each port of one that trains."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from trainer.announcing import Loaded, announce
from trainer.attempt import Attempt
from trainer.checkpoints import Checkpoints, Saved, fetch
from trainer.contract.events import RunWarning
from trainer.contract.manifest import config_hash
from trainer.contract.rundir import MODEL, RESUME
from trainer.contract.spec import RunSpec
from trainer.crew import Crew
from trainer.data.dataset import TaskSets
from trainer.data.sampler import TaskSampler
from trainer.data.sampling import Sampling
from trainer.data.sets import load_tasks
from trainer.determinism import make_deterministic
from trainer.engines.canary import canary_tokens
from trainer.envs.base import EnvProvider
from trainer.errors import CheckpointError, SpecError
from trainer.evaluation import Evaluator
from trainer.loading import importing
from trainer.loop import Parts, Start, Trainer
from trainer.prompting import PromptReport
from trainer.recipe import Recipe
from trainer.reporting import StepReporter
from trainer.rollouts.collect import Collector
from trainer.rollouts.redrawing import Redrawing
from trainer.rollouts.stream import GroupStream, StreamOptions
from trainer.rollouts.training import training_wave
from trainer.saving import Saver
from trainer.schedule import Schedule
from trainer.sources import WITHOUT_WEIGHTS, read_vocab_size, resolve_source
from trainer.watchdog import Watchdog
from trainer.waves import Waves


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draws:
    """Which tasks there are, and where their order stands."""

    sampler: TaskSampler
    tasks: TaskSets
    saved: Saved | None


def build_trainer(attempt: Attempt, provider: EnvProvider | None = None) -> Trainer:
    """Load model, tasks and checkpoint, say `trainer.started`, and return the trainer.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        ModelUnavailable: the model's files are missing or cannot be read.
        SpecError: the model is not one we compute, or lengths do not fit its positions.
        DataError: the tasks cannot be made.
        CheckpointError: the checkpoint is missing, torn or does not fit.
    """
    spec = attempt.spec
    if spec.deterministic:
        make_deterministic(spec.schedule.seed)
    model_dir, vocab_size = policy_here(attempt)
    tasks = load_tasks(spec, attempt.store)
    recipe = Recipe(
        spec=spec,
        model_dir=model_dir,
        vocab_size=vocab_size,
        attempt_dir=attempt.dir.path,
        attempt=attempt.dir.attempt,
        provider=provider,
    )
    try:
        # Before anything is placed: one that is torn costs no minute of the engines' start.
        saved = _bring_checkpoint(attempt)
        crew = _gather_crew(recipe)
        try:
            return _with_crew(attempt, crew, tasks, recipe, saved)
        except BaseException:
            crew.abandon()
            raise
    finally:
        shutil.rmtree(attempt.dir.path / RESUME, ignore_errors=True)


def policy_here(attempt: Attempt) -> tuple[Path, int]:
    """Bring the policy to start from here; return its directory and how many tokens it knows.

    Where a server has the policy, its tokenizer is enough, and the server says what fits it.

    Raises:
        ModelUnavailable: the model's files are missing or cannot be read.
        SpecError: the model is not one we compute, or lengths do not fit its positions.
    """
    spec, place = attempt.spec, attempt.dir.path / MODEL
    if spec.backend.tinker_server is not None:
        model_dir = resolve_source(spec.model.source, place, wanted=WITHOUT_WEIGHTS)
        return model_dir, read_vocab_size(model_dir)
    refuse_gpu(spec, has_gpu=torch.cuda.is_available())
    model_dir = resolve_source(spec.model.source, place)
    with importing():
        from trainer.models import load_config  # noqa: PLC0415 - see trainer.loading
    config = load_config(model_dir, spec.model)
    check_lengths(spec, config.max_position_embeddings)
    return model_dir, config.vocab_size


def _with_crew(
    attempt: Attempt, crew: Crew, tasks: TaskSets, recipe: Recipe, saved: Saved | None
) -> Trainer:
    if saved is not None:
        crew.learner.load(attempt.dir.path / RESUME)
    # An evaluation draws nothing: it may be over other tasks than the checkpoint was trained on.
    drawn = None if attempt.spec.kind == "eval" else saved
    draws = _Draws(sampler=_sampler(attempt.spec, tasks, drawn), tasks=tasks, saved=saved)
    _announce(attempt, draws, crew)
    return Trainer(_parts(attempt, crew, draws, recipe), _start(attempt, saved))


def _gather_crew(recipe: Recipe) -> Crew:
    """Put the workers where the spec wants them."""
    if recipe.spec.backend.tinker_server is not None:
        with importing():
            from trainer.tinker_crew import tinker_crew  # noqa: PLC0415 - see trainer.loading
        return tinker_crew(recipe)
    if is_inline(recipe.spec):
        with importing():
            from trainer.inline_crew import inline_crew  # noqa: PLC0415 - see trainer.loading
        return inline_crew(recipe)
    with importing():
        # Not installed everywhere.
        from trainer.placement.crew import ray_crew  # noqa: PLC0415

    return ray_crew(recipe)


def _parts(attempt: Attempt, crew: Crew, draws: _Draws, recipe: Recipe) -> Parts:
    spec, journal, clock = attempt.spec, attempt.journal, attempt.clock
    collector = Collector(
        crew.rolls, max_concurrent_rollouts=spec.environment.max_concurrent_rollouts
    )
    waves = Waves(
        collector=collector,
        journal=journal,
        stop=attempt.stop,
        store=attempt.store,
        attempt_dir=attempt.dir,
        max_infra_error_rate=spec.environment.max_infra_error_rate,
    )
    watchdog = Watchdog(
        schedule=spec.schedule,
        journal=journal,
        stop=attempt.stop,
        num_drawn=lambda: crew.engine_stats().num_sampled_tokens,
        refresh=crew.refresh,
        ran_before_s=_ran_before(attempt, draws.saved),
        on_blocked=attempt.on_blocked,
    )
    return Parts(
        spec=spec,
        sampler=draws.sampler,
        stream=_stream(spec, collector, draws),
        crew=crew,
        waves=waves,
        evaluator=Evaluator(
            spec=spec.eval,
            tasks=draws.tasks.eval,
            waves=waves,
            journal=journal,
            watchdog=watchdog,
        ),
        reporter=StepReporter(spec=spec, journal=journal, clock=clock),
        saver=_saver(attempt, crew),
        journal=journal,
        stop=attempt.stop,
        clock=clock,
        watchdog=watchdog,
        canary_tokens=canary_tokens(recipe.vocab_size),
        prompts=PromptReport(
            spec=spec,
            tasks=(*draws.tasks.train, *draws.tasks.eval),
            model_dir=recipe.model_dir,
            vocab_size=recipe.vocab_size,
            provider=recipe.provider,
            journal=journal,
            store=attempt.store,
            attempt_dir=attempt.dir,
        ),
    )


def _saver(attempt: Attempt, crew: Crew) -> Saver:
    checkpoints = Checkpoints(
        attempt.store,
        attempt.dir,
        config_hash=config_hash(attempt.spec),
        parent=attempt.resume_from,
        still_current=attempt.stop.check_superseded,
    )
    return Saver(
        checkpoints=checkpoints,
        learner=crew.learner,
        journal=attempt.journal,
        clock=attempt.clock,
        keep_last=attempt.spec.checkpoints.keep_last,
        keep_only=crew.keep_only,
    )


def refuse_gpu(spec: RunSpec, *, has_gpu: bool) -> None:
    """Let only experiments onto a GPU: no part of the trainer was ever run on one.

    Raises:
        SpecError: there is a GPU, and the spec does not say `experimental`.
    """
    if has_gpu and not spec.experimental:
        raise SpecError(
            "this machine has a GPU, and the trainer was never run on one (docs/verified.md): set"
            " experimental to true to try it, or hide the GPU (CUDA_VISIBLE_DEVICES=)"
        )


def is_inline(spec: RunSpec) -> bool:
    """Tell whether the workers share this process; else Ray places them.

    Raises:
        SpecError: the spec asks for Ray, which is not installed.
    """
    place, has_ray = spec.placement.type, find_spec("ray") is not None
    if place == "ray" and not has_ray:
        raise SpecError("placement.type is ray, but Ray is not installed")
    return place == "inline" or not has_ray


def check_lengths(spec: RunSpec, positions: int) -> None:
    """Refuse sequences longer than the model.

    Raises:
        SpecError: a rollout may be longer than `positions`.
    """
    if spec.rollout.max_sequence_length > positions:
        raise SpecError(
            f"rollout.max_sequence_length ({spec.rollout.max_sequence_length}) is larger than the"
            f" model's positions ({positions}): lower it"
        )


def _sampler(spec: RunSpec, tasks: TaskSets, saved: Saved | None) -> TaskSampler:
    size, sampling = spec.schedule.train_batch_size, Sampling.of(spec.data)
    if spec.kind == "eval":
        # It draws nothing, and a dataset to evaluate on may have nothing to draw.
        return TaskSampler(tasks.eval, 1, spec.data.seed)
    if saved is not None:
        return TaskSampler.from_state(
            tasks.train,
            saved.manifest.sampler,
            prompts_per_step=size,
            seed=spec.data.seed,
            sampling=sampling,
        )
    return TaskSampler(tasks.train, size, spec.data.seed, sampling)


def _stream(spec: RunSpec, collector: Collector, draws: _Draws) -> GroupStream:
    stream = GroupStream(
        collector,
        draws.sampler.next_step,
        lambda ordinal: training_wave(spec, ordinal),
        StreamOptions(
            batch_size=spec.schedule.train_batch_size,
            last_step=spec.schedule.total_steps,
            max_staleness_steps=spec.schedule.max_staleness_steps,
            redrawing=Redrawing.of(spec.algorithm.dynamic_sampling),
        ),
    )
    if draws.saved is not None and spec.kind == "train":
        manifest = draws.saved.manifest
        drawn = manifest.stream or {"num_draws": manifest.step, "pending": []}
        stream.restore(manifest.step, drawn, {task.key: task for task in draws.tasks.train})
    return stream


def _bring_checkpoint(attempt: Attempt) -> Saved | None:
    """Bring the checkpoint here, every file checked; None for a fresh start."""
    if attempt.resume_from is None:
        return None
    saved = fetch(attempt.store, attempt.resume_from, attempt.dir.path / RESUME)
    if saved.manifest.step > Schedule.of(attempt.spec, start=saved.manifest.step).total:
        raise CheckpointError(
            f"the checkpoint is at step {saved.manifest.step}, beyond schedule.total_steps"
            f" ({attempt.spec.schedule.total_steps})"
        )
    return saved


def _start(attempt: Attempt, saved: Saved | None) -> Start:
    is_eval = attempt.spec.kind == "eval"
    if saved is None:
        return Start(is_final=is_eval)
    own = saved.manifest.run_id == attempt.dir.run_dir.name
    return Start(
        step=saved.manifest.step,
        is_first=not own,
        evaluated_step=saved.manifest.evaluated_step if own else None,
        is_final=is_eval or (own and saved.manifest.final),
    )


def _ran_before(attempt: Attempt, saved: Saved | None) -> float:
    own = saved is not None and saved.manifest.run_id == attempt.dir.run_dir.name
    return saved.manifest.ran_s if saved is not None and own else 0.0


def _announce(attempt: Attempt, draws: _Draws, crew: Crew) -> None:
    saved, tasks = draws.saved, draws.tasks
    step = saved.manifest.step if saved else 0
    loaded = Loaded(
        step=step,
        resumed_from_step=step if saved else None,
        engine=crew.engine_name,
        fallback=crew.fallback,
        num_parameters=crew.learner.num_parameters,
        num_train_tasks=len(tasks.train),
        num_eval_tasks=len(tasks.eval),
    )
    announce(attempt, loaded)
    own = saved is not None and saved.manifest.run_id == attempt.dir.run_dir.name
    if saved is not None and own and saved.manifest.config_hash != config_hash(attempt.spec):
        attempt.journal.emit(
            RunWarning,
            step=step,
            code="config_changed",
            message="the checkpoint was trained under another configuration of this run",
        )
