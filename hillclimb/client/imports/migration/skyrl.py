"""SkyPilot task files of SkyRL, with their hydra overrides, and hydra configurations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from hillclimb.client.imports.migration.draft import Json, SpecDraft, name_of
from hillclimb.client.imports.migration.machines import candidates_of, fit_workers
from hillclimb.client.imports.migration.skyrl_reasons import reason_without_place
from hillclimb.client.imports.migration.workflow import SKYPILOT_PRESET
from hillclimb.hardware.presets.presets import ALIASES, presets
from hillclimb.spec.rules.old_names import HYDRA_KEYS, HYDRA_SECTIONS, WORKFLOW_INPUTS, flat_keys

_OVERRIDE = re.compile(r"\+{0,2}((?:trainer|generator|environment|data)(?:\.\w+)+)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]{0,300}))?\}|\$(\w+)")
ENVIRONMENT_KEYS = {"NUM_EPOCHS": "epochs", "LR": "lr", "MODEL_PATH": "model_name"}
"""Variables of a task file whose names differ from the workflow's inputs."""
DECODING = {
    "generator.eval_sampling_params.temperature": "temperature",
    "generator.eval_sampling_params.top_p": "top_p",
    "generator.eval_n_samples_per_prompt": "n_samples_per_prompt",
}
_FILTER = "trainer.algorithm.zero_variance_filter"
PROVIDERS = {"fleet_task": "fleet", "fleet": "fleet"}


def is_skyrl(document: Mapping[object, Json]) -> bool:
    """Return True for a SkyPilot task with a command, or a configuration with SkyRL's sections."""
    return isinstance(document.get("run"), str) or any(name in document for name in HYDRA_SECTIONS)


def migrate_skyrl(document: Mapping[str, Json], name: str) -> SpecDraft:
    """Return the spec of a task file, or of a configuration; `name` is the file's."""
    draft = SpecDraft.of_preset(name if name in presets() or name in ALIASES else SKYPILOT_PRESET)
    draft.set("name", name_of(str(document.get("name") or name), "migrated"))
    variables = _variables(draft, document)
    sections = {
        key: document[key] for key in (*HYDRA_SECTIONS, "environment", "data") if key in document
    }
    overrides = flat_keys(sections) | dict(_overrides(draft, document.get("run"), variables))
    draft.place_known(overrides, HYDRA_KEYS)
    _normalisation(draft, overrides)
    _engine(draft, overrides)
    _decoding(draft, overrides)
    _logger(draft, overrides)
    for key in overrides:
        if key not in HYDRA_KEYS and (reason := reason_without_place(key)) is not None:
            draft.remark(key, reason)
    machines = candidates_of(draft, document.get("resources"))
    if machines:
        draft.set("backend.skypilot.candidates", machines)
    if isinstance(document.get("num_nodes"), int):
        draft.set("backend.skypilot.num_nodes", document["num_nodes"])
    fit_workers(draft)
    for part in ("setup", "workdir", "file_mounts"):
        if part in document:
            draft.remark(part, "the service installs the trainer on the machines by itself")
    return draft


def _variables(draft: SpecDraft, document: Mapping[str, Json]) -> dict[str, str]:
    """Set the spec's keys for the file's variables, and return those with a value."""
    variables: dict[str, str] = {}
    envs = document.get("envs")
    for name, value in envs.items() if isinstance(envs, Mapping) else ():
        text = "" if value is None else str(value)
        variables[str(name)] = text
        old = ENVIRONMENT_KEYS.get(str(name), str(name).lower())
        if _is_secret(str(name)):
            draft.remark(str(name), _NO_KEYS)
        elif old in WORKFLOW_INPUTS:
            draft.place(WORKFLOW_INPUTS[old], str(name), text)
    secrets = document.get("secrets")
    for name in secrets if isinstance(secrets, Mapping) else ():
        draft.remark(str(name), _NO_KEYS)
    return variables


_NO_KEYS = (
    "keys are never in a spec: they are variables of the runner's, or of the service's environment"
    " (HILLCLIMB_NODE_SECRETS)"
)


def _is_secret(name: str) -> bool:
    return (
        name.endswith(("_KEY", "_TOKEN", "_SECRET", "_KEY_ID", "_PASSWORD")) and name != "ENV_KEY"
    )


def _overrides(
    draft: SpecDraft, run: Json, variables: Mapping[str, str]
) -> Iterator[tuple[str, Json]]:
    """Yield the hydra overrides of a command, by key."""
    if not isinstance(run, str):
        return
    for word in _words(run):
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            continue
        key, text = match[1], _filled(match[2], variables)
        if text is None:
            if key in HYDRA_KEYS and key != "generator.num_inference_engines":
                draft.remark(key, f"{match[2]!r:.80} is known on the machine only: set it yourself")
            yield key, None
            continue
        try:
            yield key, yaml.safe_load(text)
        except yaml.YAMLError:
            yield key, text


def _words(run: str) -> Iterator[str]:
    """Yield the words of a shell script; a command that cannot be split is split at its spaces."""
    for line in re.sub(r"\\\s*\n", " ", run).splitlines():
        if "=" not in line or line.lstrip().startswith("#"):
            continue
        try:
            yield from shlex.split(line)
        except ValueError:
            yield from line.split()


def _filled(text: str, variables: Mapping[str, str]) -> str | None:
    """Return the text with its variables filled in; None where one has no value in the file."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1] or match[3]
        filled = variables.get(name) or match[2]
        missing = missing or filled is None
        return filled or ""

    filled = _VARIABLE.sub(value, text)
    return None if missing else filled


def _normalisation(draft: SpecDraft, overrides: Mapping[str, Json]) -> None:
    """Set which rollouts the loss is divided by, as SkyRL 0.3.0 does.

    Groups that score alike count in all its means. Its filter takes their tokens out of the loss,
    so that a token mean is without them; a mean over sequences counts them all the same
    (`apply_loss_reduction_to_advantages_minibatch`).
    """
    is_filtered = str(overrides.get(_FILTER)).lower() == "true"
    by_tokens = draft.spec["algorithm"].get("loss_reduction", "token_mean") == "token_mean"
    draft.set("algorithm.normalize_by", "gradient" if is_filtered and by_tokens else "batch")
    if _FILTER in overrides and overrides[_FILTER] is None:
        draft.remark(
            _FILTER,
            "its value is known on the machine only: where it is true, and loss_reduction is"
            " token_mean, set algorithm.normalize_by to gradient",
        )
    if overrides.get("trainer.algorithm.loss_reduction") == "token_mean_legacy":
        draft.remark(
            "trainer.algorithm.loss_reduction",
            "token_mean_legacy averages over micro-batches: here it is token_mean, which does not"
            " depend on them",
        )


def _engine(draft: SpecDraft, overrides: Mapping[str, Json]) -> None:
    env_class = overrides.get("environment.env_class")
    if env_class in PROVIDERS:
        draft.set("environment.provider", PROVIDERS[str(env_class)])
    elif env_class is not None:
        draft.remark(
            "environment.env_class",
            f"{env_class} is a class of SkyRL's process: serve it over OpenEnv's protocol, and name"
            " its address in environment.openenv (docs/environments.md)",
        )
    backend = overrides.get("generator.backend")
    if backend == "vllm":
        draft.set("engine.type", "vllm")
    elif backend is not None:
        draft.remark("generator.backend", f"{backend} is no engine here: vLLM samples")
    if overrides.get("generator.weight_sync_backend") == "nccl":
        draft.set("engine.weight_transport", "nccl")


def _decoding(draft: SpecDraft, overrides: Mapping[str, Json]) -> None:
    """Set the decoding of evaluations from SkyRL's sampling parameters for them."""
    values: dict[str, Any] = {
        key: overrides[old] for old, key in DECODING.items() if overrides.get(old) is not None
    }
    if not values:
        return
    is_greedy = values.get("temperature") == 0
    decoding = {"name": "greedy" if is_greedy else "sampled", **values}
    if is_greedy:
        decoding = {"name": "greedy", "temperature": 0.0}
        if values.get("n_samples_per_prompt", 1) != 1:
            draft.remark(
                "generator.eval_n_samples_per_prompt",
                "greedy decoding draws the same rollout every time: it is 1",
            )
    draft.set("eval.decodings", [decoding])
    draft.set("eval.interval_decodings", None)


def _logger(draft: SpecDraft, overrides: Mapping[str, Json]) -> None:
    if "wandb" in str(overrides.get("trainer.logger", "")):
        draft.set("tracking.wandb.mode", "online")
