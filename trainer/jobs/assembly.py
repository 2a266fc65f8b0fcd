"""Parts that several kinds of jobs are built from: policy, workers, rollout service, watchdog."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.environment.base import EnvProvider
from hillclimb.environment.task import Task
from hillclimb.hardware.memory.routes import why_not_replayed
from hillclimb.hardware.model.defaults import why_unsuited
from hillclimb.hardware.model.shapes import ModelShape, shape_of_config
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.spec.run import RunSpec
from trainer.attempt.context import AttemptContext
from trainer.attempt.watchdog import SAVED_STEP, Watchdog
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import gpu_versions, require_accepted
from trainer.jobs.prompt_preview import PromptPreview
from trainer.jobs.rollout_service import RolloutService
from trainer.rollouts.groups.collector import Collector
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import SamplingWorkers

if TYPE_CHECKING:
    from trainer.inputs.model.families.family import CausalLMConfig


def worker_factory(
    context: AttemptContext,
    provider: EnvProvider | None,
    *,
    spec: RunSpec,
    model_dir: Path,
    vocab_size: int,
) -> WorkerFactory:
    """Return the factory of the attempt's workers for `spec`."""
    return WorkerFactory(
        spec=spec,
        model_dir=model_dir,
        vocab_size=vocab_size,
        attempt_dir=context.dir.path,
        attempt=context.dir.attempt,
        provider=provider,
    )


def rollout_service(
    context: AttemptContext,
    workers: SamplingWorkers,
    *,
    model_dir: Path,
    max_infra_error_rate: float,
) -> RolloutService:
    """Return the rollout service over the workers' rollout runner."""
    limit = context.spec.environment.max_concurrent_rollouts
    return RolloutService(
        context=context,
        collector=Collector(workers.rollout_runner, max_concurrent_rollouts=limit),
        max_infra_error_rate=max_infra_error_rate,
        model_dir=model_dir,
    )


def engine_watchdog(
    context: AttemptContext,
    workers: SamplingWorkers,
    *,
    remainder: str = SAVED_STEP,
    ran_before_s: float = 0.0,
) -> Watchdog:
    """Return a watchdog that counts the tokens of the workers' engines."""
    return Watchdog(
        context=context,
        num_sampled=lambda: workers.engine_stats().num_sampled_tokens,
        refresh=workers.refresh,
        remainder=remainder,
        ran_before_s=ran_before_s,
    )


def prompt_preview(
    context: AttemptContext, factory: WorkerFactory, tasks: Sequence[Task]
) -> PromptPreview:
    """Return the preview of the prompts of `tasks` at the start of a run."""
    return PromptPreview(
        context=context,
        tasks=tasks,
        model_dir=factory.model_dir,
        vocab_size=factory.vocab_size,
        provider=factory.provider,
    )


def load_checked_config(spec: RunSpec, model_dir: Path) -> CausalLMConfig:
    """Return the model's configuration.

    Raises:
        ModelUnavailable: the model's files are missing or cannot be read.
        SpecError: the architecture is not supported, rollouts may exceed its positions, routes
            cannot be replayed, or settings are the tiny models' and this one is large, and there
            is a GPU.
    """
    with gc_paused_import():
        import torch  # noqa: PLC0415 - see hillclimb.process.lazy_imports

        from trainer.inputs.model.directory import load_config  # noqa: PLC0415 - as above
    config = load_config(model_dir, spec.model)
    check_lengths(spec, config.max_position_embeddings)
    if spec.learner.routing_replay:
        refuse_replay(spec, shape_of_config(config.to_dict()))
    if torch.cuda.is_available():
        refuse_unsuited(spec, shape_of_config(config.to_dict()))
    return config


def refuse_replay(spec: RunSpec, shape: ModelShape) -> None:
    """Reject routing replay for a model without experts, or beyond its bound, as the plan does.

    Raises:
        SpecError: routes cannot be replayed.
    """
    if (why := why_not_replayed(spec, shape)) is not None:
        raise SpecError(why)


def refuse_unsuited(spec: RunSpec, shape: ModelShape) -> None:
    """Reject settings of the tiny models for a large one on a GPU, as the plan of hardware does.

    Raises:
        SpecError: precision or learning rate do not suit the model.
    """
    reasons = list(why_unsuited(spec, shape))
    if reasons:
        raise SpecError("; ".join(reasons))


def check_lengths(spec: RunSpec, positions: int) -> None:
    """Reject sequences longer than the model's positions.

    Raises:
        SpecError: a rollout may be longer than `positions`.
    """
    if spec.rollout.max_sequence_length > positions:
        raise SpecError(
            f"rollout.max_sequence_length ({spec.rollout.max_sequence_length}) is larger than the"
            f" model's positions ({positions}): lower it"
        )


def refuse_gpu(spec: RunSpec, *, has_gpu: bool) -> None:
    """Reject a GPU that the spec neither tries as an experiment nor has evidence of.

    Raises:
        SpecError: there is a GPU, and neither flag nor evidence allows one like it.
    """
    if has_gpu:
        present = gpu_versions()
        require_accepted(
            spec,
            "gpu",
            subject=present.get("gpu"),
            present=present,
            never="this machine has a GPU, and no run with the locked versions of torch and vLLM"
            " was on one",
            instead="hide the GPU (CUDA_VISIBLE_DEVICES=)",
        )


def is_inline(spec: RunSpec) -> bool:
    """Return True if the workers share this process; otherwise Ray places them.

    Raises:
        SpecError: the spec requires Ray, which is not installed.
    """
    placement, has_ray = spec.placement.type, find_spec("ray") is not None
    if placement == "ray" and not has_ray:
        raise SpecError("placement.type is ray, but Ray is not installed")
    return placement == "inline" or not has_ray
