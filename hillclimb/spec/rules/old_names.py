"""Inputs of other trainers by their names, each with its key in a run spec.

`hillclimb.protocol.spec_problems` answers them with the new place, and `hillclimb migrate` turns
them into it. Sources: the inputs of the workflows `Fleet Task Training (SkyPilot)` and `(Tinker)`,
and the hydra overrides of SkyRL's task files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Any


class OldValueRefused(ValueError):
    """The value of an old input cannot be read; the message says what it has to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """The keys of a run spec that an old input sets."""

    keys: tuple[str, ...]
    read: Callable[[Json], Json] = lambda value: value
    """Turns the old value into the new one; raises ValueError or TypeError."""

    def settings(self, name: str, value: Json) -> dict[str, Json]:
        """Return the values by dotted key; none for an empty input, which had no effect.

        Raises:
            OldValueRefused: the value cannot be read.
        """
        if value is None or value == "":
            return {}
        try:
            new = self.read(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise OldValueRefused(f"{name} {value!r:.80} cannot be read: {error}") from error
        return dict.fromkeys(self.keys, new)


def _to(*keys: str, read: Callable[[Json], Json] = lambda value: value) -> NewPlace:
    return NewPlace(keys=keys, read=read)


def _number(value: Json) -> int | float:
    """Return a number; a form sends it as text, and YAML 1.1 reads `1e-6` as text."""
    number = float(value)
    return int(number) if number.is_integer() and "e-" not in str(value).lower() else number


def _switch(value: Json) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _names(value: Json) -> list[str]:
    names = value if isinstance(value, list) else str(value).split(",")
    return [str(name).strip() for name in names if str(name).strip()]


def _reduction(value: Json) -> Json:
    """Return SkyRL's reduction; the old form of its token mean depends on the micro-batches."""
    if value == "prompt_mean":
        raise ValueError("a mean over prompts is not here: choose algorithm.loss_reduction")
    return "token_mean" if value == "token_mean_legacy" else value


WORKFLOW_INPUTS: Mapping[str, NewPlace] = {
    "modality": _to("data.modality"),
    "env_key": _to("data.env_keys", read=_names),
    "max_tasks": _to("data.max_tasks", read=_number),
    "model_name": _to("model.source"),
    "max_steps": _to("schedule.total_steps", read=_number),
    "batch_size": _to("schedule.train_batch_size", "schedule.mini_batch_size", read=_number),
    "n_samples_per_prompt": _to("rollout.n_samples_per_prompt", read=_number),
    "lr": _to("optimizer.lr", read=_number),
    "learning_rate": _to("optimizer.lr", read=_number),
    "epochs": _to("schedule.epochs", read=_number),
    "num_epochs": _to("schedule.epochs", read=_number),
    "train_batch_size": _to("schedule.train_batch_size", read=_number),
    "mini_batch_size": _to("schedule.mini_batch_size", read=_number),
    "max_turns": _to("environment.max_turns", read=_number),
    "ckpt_interval": _to("checkpoints.interval", read=_number),
    "eval_interval": _to("eval.interval", read=_number),
    "lora_rank": _to("backend.tinker.lora_rank", read=_number),
}
"""Inputs of both workflows, and the parameters that the training guide names for them."""

ON_THE_COMMAND_LINE: Mapping[str, str] = {
    "cloud": "the cloud of a preset is an option of `hillclimb submit` and `plan`: --preset"
    " openenv-fleet-grpo --cloud {value}; in a spec it is the infra of"
    " backend.skypilot.candidates",
    "task_name": "a task file by name is a preset: hillclimb submit --preset {value}",
}
"""Inputs of the workflows that chose a file or a machine, with their new place."""

HYDRA_KEYS: Mapping[str, NewPlace] = {
    "trainer.policy.model.path": _to("model.source"),
    "trainer.policy.model.lora.rank": _to("learner.lora.rank", read=_number),
    "trainer.policy.model.lora.alpha": _to("learner.lora.alpha", read=_number),
    "trainer.policy.optimizer_config.lr": _to("optimizer.lr", read=_number),
    "trainer.policy.optimizer_config.weight_decay": _to("optimizer.weight_decay", read=_number),
    "trainer.policy.optimizer_config.max_grad_norm": _to("optimizer.max_grad_norm", read=_number),
    "trainer.policy.optimizer_config.num_warmup_steps": _to(
        "schedule.lr_warmup_steps", read=_number
    ),
    "trainer.policy.fsdp_config.cpu_offload": _to("learner.cpu_offload", read=_switch),
    "trainer.algorithm.advantage_estimator": _to("algorithm.type"),
    "trainer.algorithm.policy_loss_type": _to("algorithm.policy_loss_type"),
    "trainer.algorithm.loss_reduction": _to("algorithm.loss_reduction", read=_reduction),
    "trainer.algorithm.grpo_norm_by_std": _to("algorithm.grpo_norm_by_std", read=_switch),
    "trainer.algorithm.use_kl_loss": _to("algorithm.use_kl_loss", read=_switch),
    "trainer.algorithm.kl_loss_coef": _to("algorithm.kl_loss_coef", read=_number),
    "trainer.algorithm.eps_clip_low": _to("algorithm.eps_clip_low", read=_number),
    "trainer.algorithm.eps_clip_high": _to("algorithm.eps_clip_high", read=_number),
    "trainer.train_batch_size": _to("schedule.train_batch_size", read=_number),
    "trainer.policy_mini_batch_size": _to("schedule.mini_batch_size", read=_number),
    "trainer.epochs": _to("schedule.epochs", read=_number),
    "trainer.seed": _to("schedule.seed", read=_number),
    "trainer.ckpt_interval": _to("checkpoints.interval", read=_number),
    "trainer.max_ckpts_to_keep": _to("checkpoints.keep_last", read=_number),
    "trainer.eval_interval": _to("eval.interval", read=_number),
    "trainer.eval_before_train": _to("eval.before_training", read=_switch),
    "trainer.gradient_checkpointing": _to("learner.activation_checkpointing", read=_switch),
    "trainer.project_name": _to("tracking.wandb.project"),
    "trainer.run_name": _to("name"),
    "generator.n_samples_per_prompt": _to("rollout.n_samples_per_prompt", read=_number),
    "generator.max_turns": _to("environment.max_turns", read=_number),
    "generator.max_input_length": _to("rollout.max_input_length", read=_number),
    "generator.step_wise_trajectories": _to("algorithm.step_wise", read=_switch),
    "generator.step_wise_training": _to("algorithm.step_wise", read=_switch),
    "generator.sampling_params.temperature": _to("rollout.temperature", read=_number),
    "generator.sampling_params.max_generate_length": _to(
        "rollout.max_generate_length", read=_number
    ),
    "generator.num_inference_engines": _to("engine.data_parallel_size", read=_number),
    "generator.inference_engine_tensor_parallel_size": _to(
        "engine.tensor_parallel_size", read=_number
    ),
    "generator.gpu_memory_utilization": _to("engine.gpu_memory_utilization", read=_number),
    "generator.apply_overlong_filtering": _to("algorithm.apply_overlong_filtering", read=_switch),
}
"""Hydra overrides of SkyRL's `main_base` and `main_fleet` that have a place in a spec."""

HYDRA_SECTIONS = ("trainer", "generator")
"""Sections of a SkyRL configuration that a run spec does not have."""
MAX_NAMED = 5
"""Keys that one sentence names."""


def new_place(path: tuple[str, ...], value: Json) -> str | None:
    """Return a sentence with the new key and value of an old input, or None if it is none.

    `path` is the unknown key with its sections, `value` what was written there.
    """
    # An override may stand there as one key, `trainer.epochs`, as on SkyRL's command line.
    if path and path[0].partition(".")[0] in HYDRA_SECTIONS:
        return _new_places_of_hydra(path, value)
    name = path[-1] if path else ""
    if name in ON_THE_COMMAND_LINE:
        return ON_THE_COMMAND_LINE[name].format(value=_text(value))
    place = WORKFLOW_INPUTS.get(name)
    return None if place is None else _sentence(place, name, value)


def flat_keys(section: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return the values of nested mappings by dotted key."""
    flat: dict[str, Json] = {}
    for key, value in section.items():
        dotted = f"{prefix}{key}"
        flat |= flat_keys(value, f"{dotted}.") if isinstance(value, Mapping) else {dotted: value}
    return flat


def _new_places_of_hydra(path: tuple[str, ...], value: Json) -> str:
    dotted = ".".join(path)
    flat = flat_keys(value, f"{dotted}.") if isinstance(value, Mapping) else {dotted: value}
    known = [key for key in flat if key in HYDRA_KEYS][:MAX_NAMED]
    sentences = [f"{key}: {_sentence(HYDRA_KEYS[key], key, flat[key])}" for key in known]
    sentences.append("hillclimb migrate FILE turns a SkyRL configuration into a spec")
    return "; ".join(sentences)


def _sentence(place: NewPlace, name: str, value: Json) -> str:
    try:
        settings = place.settings(name, value)
    except OldValueRefused:
        settings = dict.fromkeys(place.keys, value)
    if not settings:
        return f"leave it out: {place.keys[0]} without a value takes the default"
    return "set " + " and ".join(f"{key} to {_text(new)}" for key, new in settings.items())


def _text(value: Json) -> str:
    return value[:80] if isinstance(value, str) else json.dumps(value, default=str)[:80]
