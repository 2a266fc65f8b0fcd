"""Reinforcement fine-tuning jobs and graders of OpenAI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hillclimb.client.imports.migration.draft import Json, SpecDraft, name_of
from hillclimb.spec.rules.old_names import NewPlace

GRADERS: Mapping[str, str] = {
    "string_check": "an equality of two texts",
    "text_similarity": "a similarity of two texts",
    "score_model": "another model's score",
    "label_model": "another model's label",
    "python": "a Python function",
    "multi": "a formula over other graders",
    "endpoint": "a service of your own",
}
PLACES: Mapping[str, tuple[str, ...]] = {
    "n_epochs": ("schedule.epochs",),
    "batch_size": ("schedule.train_batch_size", "schedule.mini_batch_size"),
    "eval_interval": ("eval.interval",),
}
REASONS: Mapping[str, str] = {
    "learning_rate_multiplier": "it scales a rate that OpenAI chooses: set optimizer.lr yourself",
    "compute_multiplier": "it scales what OpenAI chooses: rollout.n_samples_per_prompt is the"
    " number of rollouts per prompt",
    "reasoning_effort": "rollout.max_generate_length bounds what a turn may think",
}
DEFAULT_DATASET = "tasks"


def is_openai(document: Mapping[object, Json]) -> bool:
    """Return True for a job, its section `method`, or a grader."""
    return _grader(document) is not None


def _grader(document: Mapping[Any, Json]) -> Mapping[str, Json] | None:
    if document.get("type") in GRADERS:
        return {str(key): value for key, value in document.items()}
    for part in (document, document.get("method")):
        inner = part.get("reinforcement") if isinstance(part, Mapping) else None
        grader = inner.get("grader") if isinstance(inner, Mapping) else None
        if isinstance(grader, Mapping):
            return grader
    grader = document.get("grader")
    return grader if isinstance(grader, Mapping) and grader.get("type") in GRADERS else None


def migrate_openai(document: Mapping[str, Json], name: str) -> SpecDraft:
    """Return the spec of a job or of a grader alone; `name` is the file's."""
    suffix = document.get("suffix")
    draft = SpecDraft(spec={"name": name_of(str(suffix or name), "migrated")})
    training_file = document.get("training_file")
    draft.set("data.dataset", DEFAULT_DATASET)
    draft.set("environment.provider", "fleet")
    draft.spec["experimental"] = True
    draft.remark(
        "training_file",
        f"{training_file or 'the file of items'} is at OpenAI: register it as the dataset"
        f" {DEFAULT_DATASET}, each item with key, prompt, env_key and verifier_code"
        " (docs/datasets.md)",
    )
    if "validation_file" in document:
        draft.remark("validation_file", "its items are the eval tasks of the dataset's split")
    if "model" in document:
        draft.remark("model", f"{document['model']} cannot be had as weights: set model.source")
    if isinstance(document.get("seed"), int):
        draft.set("schedule.seed", document["seed"])
    _grader_remark(draft, _grader(document) or {})
    _hyperparameters(draft, document)
    _tracking(draft, document)
    return draft


def _grader_remark(draft: SpecDraft, grader: Mapping[str, Json]) -> None:
    kind = str(grader.get("type"))
    code = (
        "its grade(sample, item) becomes the verifier_code of the tasks, a function verify(env)"
        if kind == "python"
        else "write it as the verifier_code of the tasks, a function verify(env), or serve it as"
        " the reward of an environment (docs/environments.md)"
    )
    draft.remark(f"grader {kind}", f"{GRADERS.get(kind, 'unknown')} grades a text; {code}")
    if isinstance(grader.get("pass_threshold"), int | float):
        draft.set("eval.pass_threshold", float(grader["pass_threshold"]))


def _hyperparameters(draft: SpecDraft, document: Mapping[str, Json]) -> None:
    method = document.get("method", document)
    part = method.get("reinforcement") if isinstance(method, Mapping) else None
    values = part.get("hyperparameters") if isinstance(part, Mapping) else None
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if value == "auto":
            draft.remark(key, "auto is not known here: the spec's default counts")
        elif key in PLACES:
            draft.place(NewPlace(keys=PLACES[key]), key, value)
        elif key == "eval_samples" and isinstance(value, int):
            decoding = {"name": "sampled", "n_samples_per_prompt": value}
            draft.set("eval.decodings", [decoding])
        else:
            draft.remark(key, f"no place: {REASONS.get(key, 'no key of a spec has this meaning')}")
    if isinstance(part, Mapping) and "response_format" in part:
        draft.remark("response_format", "no place: answers are text and tool calls")


def _tracking(draft: SpecDraft, document: Mapping[str, Json]) -> None:
    integrations = document.get("integrations")
    for each in integrations if isinstance(integrations, list) else ():
        wandb = each.get("wandb") if isinstance(each, Mapping) else None
        if not isinstance(wandb, Mapping):
            continue
        draft.set("tracking.wandb.mode", "online")
        for key in ("project", "entity", "tags"):
            if wandb.get(key):
                draft.set(f"tracking.wandb.{key}", wandb[key])
    metadata = document.get("metadata")
    if isinstance(metadata, Mapping) and metadata:
        tags = [re.sub(r"[^A-Za-z0-9._:/-]+", "-", f"{k}:{v}")[:64] for k, v in metadata.items()]
        draft.set("tags", tags)
