"""Reads a file of another trainer, recognises its format and returns the spec with remarks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hillclimb.client.imports.migration.draft import (
    Json,
    MigrationRefused,
    SpecDraft,
    refuse_wrong_type,
)
from hillclimb.client.imports.migration.openai import is_openai, migrate_openai
from hillclimb.client.imports.migration.skyrl import is_skyrl, migrate_skyrl
from hillclimb.client.imports.migration.verifiers import is_verifiers, migrate_verifiers
from hillclimb.client.imports.migration.workflow import migrate_workflow, workflow_inputs
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.run import MINIFLEET_ENV_KEYS, RunSpec

MAX_BYTES = 2_000_000
FORMATS = (
    "the inputs of a GitHub workflow (or the workflow's file), a SkyPilot task or hydra"
    " configuration of SkyRL, a TOML file of prime-rl or verifiers, or a reinforcement fine-tuning"
    " job or grader of OpenAI"
)
RENTED_ONLY = ("backend", "model", "engine", "placement", "learner", "optimizer", "algorithm")
"""Sections that are sized for large models."""
SMALL = ("n_samples_per_prompt", "temperature")
LOCAL_TASKS = {"eval_tasks_per_env": 12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """The spec of an old file."""

    format: str
    spec: dict[str, Json]
    remarks: tuple[str, ...]
    """What has no place and why, and what is left to do."""
    problems: tuple[str, ...]
    """Why the service would refuse the spec as it is."""


def migrate(path: Path, *, is_local: bool = False) -> Migrated:
    """Return the spec of a file; `is_local` sizes it for this machine and the miniature apps.

    Raises:
        MigrationRefused: the file cannot be read, or its format is unknown.
    """
    document = _read(path)
    format_name, draft = _draft(document, path)
    if is_local:
        draft = _localised(draft)
    draft.settle()
    try:
        RunSpec.model_validate(draft.spec)
        problems: tuple[str, ...] = ()
    except ValidationError as error:
        problems = tuple(f"{each.pointer or '/'}: {each.message}" for each in explain(error))
    return Migrated(
        format=format_name, spec=draft.spec, remarks=tuple(draft.remarks), problems=problems
    )


def _draft(document: Mapping[Any, Json], path: Path) -> tuple[str, SpecDraft]:
    texts = {str(key): value for key, value in document.items()}
    if is_verifiers(document):
        return "verifiers", migrate_verifiers(texts, path.stem)
    if is_skyrl(document):
        return "SkyRL", migrate_skyrl(texts, path.stem)
    if is_openai(document):
        return "OpenAI", migrate_openai(texts, path.stem)
    inputs = workflow_inputs(document)
    if inputs is not None:
        return "GitHub workflow", migrate_workflow(inputs)
    raise MigrationRefused(f"{path} is of no known format: it has to be {FORMATS}")


def _read(path: Path) -> Mapping[Any, Json]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise MigrationRefused(f"{path} has more than {MAX_BYTES:,} bytes")
        text = path.read_text()
        value = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except OSError as error:
        raise MigrationRefused(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise MigrationRefused(f"{path} is neither YAML nor JSON nor TOML: {error}") from error
    return refuse_wrong_type(value, str(path))


def _localised(draft: SpecDraft) -> SpecDraft:
    """Return the draft for the local stack: its tiny model, generated tasks, no rented machine."""
    old = draft.spec
    data, schedule = old.get("data", {}), old.get("schedule", {})
    named = data.get("env_keys") or list(MINIFLEET_ENV_KEYS)
    keys = [key for key in named if key in MINIFLEET_ENV_KEYS]
    remarks = [
        f"data.env_keys: the miniature apps have no {key}" for key in named if key not in keys
    ]
    limits = {key: data[key] for key in ("modality", "max_tasks") if data.get(key) is not None}
    samples = {key: old["rollout"][key] for key in SMALL if key in old.get("rollout", {})}
    sizes = ("total_steps", "epochs", "train_batch_size", "mini_batch_size", "seed")
    spec: dict[str, Json] = {
        "name": old["name"],
        "data": {"env_keys": keys or ["github"], "sampling": "hybrid", **limits, **LOCAL_TASKS},
        "rollout": samples,
        "schedule": {key: schedule[key] for key in sizes if schedule.get(key) is not None},
    }
    spec |= {key: old[key] for key in ("tags", "checkpoints") if key in old}
    left_out = [key for key in RENTED_ONLY if key in old]
    if left_out:
        remarks.append(
            f"--local: {', '.join(left_out)} take the defaults of the built-in model on this"
            " machine"
        )
    return SpecDraft(spec=spec, remarks=[*draft.remarks, *remarks])
