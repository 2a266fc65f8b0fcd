"""TOML files of Prime Intellect: hosted RL (`prime rl run`), prime-rl, and verifiers' `vf-rl`.

`batch_size` there counts rollouts, so that a step has `batch_size / rollouts_per_example` prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hillclimb.client.imports.migration.draft import Json, SpecDraft, name_of
from hillclimb.spec.rules.old_names import NewPlace, flat_keys

LOCAL_SERVER = "http://127.0.0.1:8000"
"""Address that stands for the environment's server until its owner writes the real one."""
ORIGINS = ("orchestrator.", "trainer.args.", "trainer.", "")
"""Sections that the three kinds of files have around the same settings."""
PLACES: Mapping[str, str] = {
    "max_steps": "schedule.total_steps",
    "num_train_epochs": "schedule.epochs",
    "rollouts_per_example": "rollout.n_samples_per_prompt",
    "learning_rate": "optimizer.lr",
    "optim.lr": "optimizer.lr",
    "optim.weight_decay": "optimizer.weight_decay",
    "optim.max_norm": "optimizer.max_grad_norm",
    "max_async_level": "schedule.max_staleness_steps",
    "seq_len": "rollout.max_sequence_length",
    "max_seq_len": "rollout.max_sequence_length",
    "sampling.max_tokens": "rollout.max_generate_length",
    "max_tokens": "rollout.max_generate_length",
    "sampling.temperature": "rollout.temperature",
    "temperature": "rollout.temperature",
    "eval.interval": "eval.interval",
    "ckpt.interval": "checkpoints.interval",
    "checkpoints.interval": "checkpoints.interval",
    "ckpt.keep": "checkpoints.keep_last",
    "wandb.project": "tracking.wandb.project",
    "wandb.entity": "tracking.wandb.entity",
    "lora_rank": "learner.lora.rank",
    "lora_alpha": "learner.lora.alpha",
    "model.lora.rank": "learner.lora.rank",
    "model.lora.alpha": "learner.lora.alpha",
    "seed": "schedule.seed",
}
_HANDLED = re.compile(
    r"(.*\.)?(env|eval\.env|batch_size|model|model\.name|run_name|wandb\.name|env\.id|name"
    r"|eval\.rollouts_per_example)"
)


def is_verifiers(document: Mapping[object, Json]) -> bool:
    """Return True for a file with environments of verifiers."""
    orchestrator = document.get("orchestrator")
    inner = orchestrator.get("env") if isinstance(orchestrator, Mapping) else None
    return _has_environments(document.get("env")) or _has_environments(inner)


def _has_environments(value: Json) -> bool:
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, Mapping) and "id" in part for part in parts)


def migrate_verifiers(document: Mapping[str, Json], name: str) -> SpecDraft:
    """Return the spec of a TOML file; `name` is the file's."""
    flat = flat_keys(document)
    draft = SpecDraft(spec={"name": name_of(_name(flat) or name, "migrated")})
    model = next(
        (flat[key] for key in ("model", "model.name", "trainer.model") if key in flat), None
    )
    if model is not None:
        draft.set("model.source", str(model))
    _environments(draft, document)
    for key, value in flat.items():
        bare = _bare(key)
        if bare in PLACES:
            draft.place(NewPlace(keys=(PLACES[bare],)), key, value)
        elif not _HANDLED.fullmatch(key) and not key.startswith(("env.", "orchestrator.env.")):
            draft.remark(key, "no place: no key of a spec has this meaning")
    _batch(draft, flat)
    samples = flat.get(
        "eval.rollouts_per_example", flat.get("orchestrator.eval.rollouts_per_example")
    )
    if isinstance(samples, int):
        decoding = {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": samples}
        draft.set("eval.decodings", [decoding])
    if "wandb" in document:
        draft.set("tracking.wandb.mode", "online")
        draft.spec["experimental"] = True
        draft.remark(
            "wandb", "W&B online was never run from here, so the spec says experimental: true"
        )
    return draft


def _name(flat: Mapping[str, Json]) -> str | None:
    names = ("name", "wandb.name", "trainer.args.run_name", "run_name")
    return next((str(flat[key]) for key in names if flat.get(key)), None)


def _bare(key: str) -> str:
    return next(key.removeprefix(origin) for origin in ORIGINS if key.startswith(origin))


def _batch(draft: SpecDraft, flat: Mapping[str, Json]) -> None:
    rollouts = next((value for key, value in flat.items() if _bare(key) == "batch_size"), None)
    samples = draft.spec.get("rollout", {}).get("n_samples_per_prompt", 8)
    if not isinstance(rollouts, int):
        return
    prompts = max(1, rollouts // samples)
    draft.set("schedule.train_batch_size", prompts)
    draft.set("schedule.mini_batch_size", prompts)
    draft.remark(
        "batch_size",
        f"{rollouts} rollouts are {prompts} prompts with {samples} samples each, and a step updates"
        " once (schedule.mini_batch_size)",
    )


def _environments(draft: SpecDraft, document: Mapping[str, Json]) -> None:
    orchestrator = document.get("orchestrator")
    entries = document.get("env") or (
        orchestrator.get("env") if isinstance(orchestrator, Mapping) else None
    )
    parts = entries if isinstance(entries, list) else [entries]
    servers: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, Mapping) or not part.get("id"):
            continue
        key = env_key_of(str(part.get("name") or part["id"]))
        arguments = part.get("args")
        servers[key] = {"url": LOCAL_SERVER}
        if isinstance(arguments, Mapping) and arguments:
            servers[key]["reset"] = dict(arguments)
        draft.remark(
            f"env {part['id']}",
            "verifiers runs it in its own process: serve it over OpenEnv's protocol and write its"
            f" address into environment.openenv.{key}.url, which is {LOCAL_SERVER} for now"
            " (docs/environments.md); its args are sent with reset()",
        )
    draft.set("data.env_keys", list(servers))
    draft.set("environment.provider", "openenv")
    draft.set("environment.openenv", servers)


def env_key_of(text: str) -> str:
    """Return the last part of `ORG/NAME@VERSION` as the key of an environment."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.partition("@")[0].rpartition("/")[2])
    return (name if name[:1].isalpha() else f"env-{name}")[:64]
