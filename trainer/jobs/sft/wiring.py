"""Builds a warm start from a spec: a learner without engines, and what it imitates."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from hillclimb.environment.base import EnvProvider, ListsTools, ToolSpec
from hillclimb.environment.errors import RolloutError
from hillclimb.environment.task import Task
from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.protocol.events import RunWarning
from hillclimb.protocol.rundir import QUALIFY, RESUME
from hillclimb.spec.hosts import S3
from trainer.algo.sequences import TrainingSequence
from trainer.attempt.context import AttemptContext
from trainer.attempt.daemon_thread import start_in_daemon_thread
from trainer.attempt.determinism import make_deterministic
from trainer.attempt.watchdog import Watchdog
from trainer.envs.choose import choose_provider
from trainer.errors import CheckpointError, EnvironmentOutage, SpecError
from trainer.inputs.model.directory import load_policy
from trainer.inputs.own_files import refuse_others_files
from trainer.inputs.tasks.sets import load_tasks
from trainer.jobs.assembly import load_checked_config, refuse_gpu, worker_factory
from trainer.jobs.sft.demonstration import Demonstration
from trainer.jobs.sft.encoding import Encoder
from trainer.jobs.sft.imitator import Imitator, ImitatorParts
from trainer.jobs.sft.rollouts import read_rollouts
from trainer.jobs.sft.sequences import Sequences, demonstrations_of, encoded, env_of
from trainer.jobs.startup_event import StartupInfo, emit_started
from trainer.jobs.train.checkpoints import Checkpoints, Saved
from trainer.jobs.train.qualification.qualifier import Qualifier
from trainer.jobs.train.recovery import Recovery
from trainer.jobs.train.saving import Saver
from trainer.jobs.train.starting_policy import fetch_model
from trainer.learners.inline import InlineLearner
from trainer.rollouts.styles.choose import choose_chat, choose_style

DOWNLOADS = "demonstrations"
"""Directory of an attempt with demonstrations that were fetched."""
RESET_TIMEOUT_S = 300.0
"""Longest wait for the reset that tells an environment's tools (seconds)."""


def build_imitator(context: AttemptContext, provider: EnvProvider | None = None) -> Imitator:
    """Load model, demonstrations and checkpoint, emit `trainer.started`, and return the job.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        ModelUnavailable, SpecError, DataError, CheckpointError: as `build_trainer`.
    """
    spec = context.spec
    if spec.deterministic:
        make_deterministic(spec.schedule.seed)
    refuse_gpu(spec, has_gpu=torch.cuda.is_available())
    with context.startup.phase("model"):
        model_dir = fetch_model(context)
        vocab_size = load_checked_config(spec, model_dir).vocab_size
    with context.startup.phase("tasks"):
        candidates, num_barred = _read_sequences(context, model_dir, vocab_size, provider)
    sequences = Sequences.of(
        candidates,
        max_length=spec.rollout.max_sequence_length,
        held_out_share=spec.sft.held_out_share,
        seed=spec.schedule.seed,
    )
    factory = worker_factory(
        context, provider, spec=spec, model_dir=model_dir, vocab_size=vocab_size
    )
    with context.startup.phase("weights"):
        learner = InlineLearner(load_policy(model_dir, spec.model), factory.learner_options())
    recovery = Recovery(context=context, qualifier=_qualifier(context, model_dir))
    saved = _load_checkpoint(context, recovery, learner)
    _emit_started(context, learner, sequences, saved)
    _warn(context, sequences, num_barred)
    for event in recovery.events:
        context.journal.emit(event)
    is_own = saved is not None and saved.manifest.run_id == context.run_id
    parts = ImitatorParts(
        context=context,
        sequences=sequences,
        learner=learner,
        saver=_saver(context, learner, recovery, saved),
        watchdog=Watchdog(
            context=context,
            num_sampled=lambda: 0,
            ran_before_s=saved.manifest.ran_s if saved is not None and is_own else 0.0,
        ),
    )
    start = saved.manifest.step if saved is not None else 0
    is_final = saved is not None and is_own and saved.manifest.final
    return Imitator(parts, start=start, is_final=is_final)


def _read_sequences(
    context: AttemptContext, model_dir: Path, vocab_size: int, provider: EnvProvider | None
) -> tuple[list[TrainingSequence], int]:
    """Return what the spec names as sequences, and how many were left out as eval tasks."""
    spec = context.spec
    if spec.sft.rollouts_of is not None:
        rollouts = read_rollouts(
            context.store,
            spec.sft.rollouts_of,
            min_score=spec.sft.min_score,
            vocab_size=vocab_size,
        )
        return list(rollouts), 0
    assert spec.sft.demonstrations is not None
    if not spec.sft.demonstrations.startswith(S3):
        path = Path(spec.sft.demonstrations)
        refuse_others_files("sft.demonstrations", path, context.dir)
    every = list(demonstrations_of(spec.sft.demonstrations, context.dir.path / DOWNLOADS))
    tasks = load_tasks(spec, context.store)
    keys = spec.data.env_keys or tuple(dict.fromkeys(each.env_key for each in tasks.train))
    barred = {(each.env_key, each.prompt) for each in tasks.eval if each.prompt}
    demonstrations = [each for each in every if (env_of(each, keys), _prompt(each)) not in barred]
    tools = _tools(context, demonstrations, (*tasks.train, *tasks.eval), keys, provider)
    chat = choose_chat(spec.prompt, model_dir, vocab_size)
    encoder = Encoder(chat, choose_style(spec.prompt, chat.call_form), tools)
    return encoded(demonstrations, encoder.encode, keys), len(every) - len(demonstrations)


def _prompt(demonstration: Demonstration) -> str:
    return demonstration.messages[1 if demonstration.has_system else 0].content or ""


def _tools(
    context: AttemptContext,
    demonstrations: Sequence[Demonstration],
    tasks: Sequence[Task],
    keys: Sequence[str],
    provider: EnvProvider | None,
) -> dict[str, tuple[ToolSpec, ...]]:
    """Return the tools of the environments whose demonstrations do not show them."""
    env_keys = {
        env_of(each, keys) for each in demonstrations if not (each.has_system or each.tools)
    }
    if not env_keys:
        return {}
    provider = provider or choose_provider(context.spec, context.tag(), worker=0, num_workers=1)
    if isinstance(provider, ListsTools):
        return {key: tuple(provider.tools_of(key)) for key in env_keys}
    first = {task.env_key: task for task in reversed(tasks)}
    missing = sorted(env_keys - first.keys())
    if missing:
        raise SpecError(f"there is no task of {missing[0]}, whose tools the demonstrations lack")
    ask = partial(_tools_of_each, provider, [first[key] for key in sorted(env_keys)])
    # In a thread: this process's own event loop is waiting for this function.
    return start_in_daemon_thread(lambda: asyncio.run(ask()), name="tools").result()


async def _tools_of_each(
    provider: EnvProvider, tasks: Sequence[Task]
) -> dict[str, tuple[ToolSpec, ...]]:
    return {task.env_key: await _tools_of(provider, task) for task in tasks}


async def _tools_of(provider: EnvProvider, task: Task) -> tuple[ToolSpec, ...]:
    env = provider.make(task)
    try:
        async with asyncio.timeout(RESET_TIMEOUT_S):
            return tuple(await env.reset())
    except (RolloutError, TimeoutError) as fault:
        raise EnvironmentOutage(
            f"{task.env_key} did not tell its tools: {fault or 'no answer'}"
        ) from fault
    finally:
        await env.close()


def _load_checkpoint(
    context: AttemptContext, recovery: Recovery, learner: InlineLearner
) -> Saved | None:
    directory = context.dir.path / RESUME
    try:
        saved = recovery.fetch()
        if saved is None:
            return None
        if saved.manifest.step > context.spec.schedule.total_steps:
            raise CheckpointError(
                f"the checkpoint is at step {saved.manifest.step}, beyond schedule.total_steps"
                f" ({context.spec.schedule.total_steps})"
            )
        learner.load(directory)
        return saved
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _qualifier(context: AttemptContext, model_dir: Path) -> Qualifier | None:
    spec = context.spec
    if not spec.checkpoints.qualify:
        return None
    folder = context.dir.path / QUALIFY
    return Qualifier(store=context.store, spec=spec, model_dir=model_dir, folder=folder)


def _saver(
    context: AttemptContext, learner: InlineLearner, recovery: Recovery, saved: Saved | None
) -> Saver:
    checkpoints = Checkpoints(
        context.store,
        context.dir,
        config_hash=config_hash(context.spec),
        parent=saved.key if saved else None,
        still_current=context.stop.check_superseded,
    )
    return Saver(
        context=context,
        checkpoints=checkpoints,
        learner=learner,
        keep_only=lambda _: None,
        qualifier=recovery.qualifier,
    )


def _emit_started(
    context: AttemptContext, learner: InlineLearner, sequences: Sequences, saved: Saved | None
) -> None:
    step = saved.manifest.step if saved else 0
    info = StartupInfo(
        step=step,
        resumed_from_step=step if saved else None,
        engine="none",
        num_parameters=learner.num_parameters,
        num_train_tasks=len(sequences.train),
        num_eval_tasks=len(sequences.held_out),
    )
    emit_started(context, info)


def _warn(context: AttemptContext, sequences: Sequences, num_barred: int) -> None:
    """Warn of conversations that were left out."""
    if sequences.num_too_long:
        limit = context.spec.rollout.max_sequence_length
        message = (
            f"{sequences.num_too_long} conversations are longer than rollout.max_sequence_length"
            f" ({limit} tokens) and were left out"
        )
        context.journal.emit(RunWarning(step=0, code="demonstrations_too_long", message=message))
    if num_barred:
        message = f"{num_barred} demonstrations show eval tasks and were left out"
        context.journal.emit(RunWarning(step=0, code="demonstrations_of_eval", message=message))
