"""Emits `trainer.started`, which ends the start of an attempt, and the warning of a fallback."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version

from hillclimb.process.code_revision import code_revision
from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.protocol.events import PhaseDuration, RunWarning, TrainerStarted
from trainer.attempt.context import AttemptContext
from trainer.inputs.accepted_paths import gpu_versions, library_versions
from trainer.jobs.step_schedule import Schedule
from trainer.rollouts.styles.choose import choose_style


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupInfo:
    """Facts about a started attempt: step, engine, sizes of model and task sets."""

    step: int = 0
    resumed_from_step: int | None = None
    engine: str
    fallback: str | None = None
    """Reason why `engine.type: auto` did not take vLLM."""
    num_parameters: int
    num_train_tasks: int
    num_eval_tasks: int


def emit_started(context: AttemptContext, info: StartupInfo) -> None:
    """Emit `trainer.started` once everything is loaded."""
    step = info.step
    context.emit(
        TrainerStarted(
            step=step,
            total_steps=Schedule.of(context.spec, start=step).total,
            resumed_from_step=info.resumed_from_step,
            config_hash=config_hash(context.spec),
            prompt_version=choose_style(context.spec.prompt).wording.version,
            engine=info.engine,
            num_parameters=info.num_parameters,
            num_train_tasks=info.num_train_tasks,
            num_eval_tasks=info.num_eval_tasks,
            versions=_versions(info.engine),
            startup=tuple(
                PhaseDuration(phase=phase, seconds=seconds)
                for phase, seconds in context.startup.seconds.items()
            ),
        )
    )
    if info.fallback:
        message = f"the torch engine samples, because {info.fallback}"
        context.emit(RunWarning(step=step, code="engine_fallback", message=message))


def _versions(engine: str) -> dict[str, str]:
    """Return the versions of code, libraries, and the GPU with its driver if there is one."""
    code = code_revision()
    return {
        "python": platform.python_version(),
        "transformers": version("transformers"),
        "source_digest": code.source_digest,
        **gpu_versions(),
        **library_versions("ray", *(["vllm"] if engine == "vllm" else [])),
        **({"revision": code.revision} if code.revision else {}),
    }
