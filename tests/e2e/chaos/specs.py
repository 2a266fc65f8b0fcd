"""The runs that are hit: small, real in every part."""

from __future__ import annotations

from typing import Any

from tests.e2e.chaos.cells import RunKind

STEPS = 6
ENV_KEY = "booking"
GREEDY = {"name": "greedy", "temperature": 0.0}
INLINE: dict[str, Any] = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}


def spec_of(kind: RunKind, *, name: str, fleet_url: str, tiny_model: str) -> dict[str, Any]:
    """A run that learns in some of its six steps, evaluates three times and saves three times.

    The shipped model where figures are compared, a random one where processes are.
    """
    base = common(name)
    if kind in (RunKind.EXACT, RunKind.TRIED):
        tried = {"checkpoints": base["checkpoints"] | {"qualify": kind is RunKind.TRIED}}
        return base | INLINE | tried | {"deterministic": True}
    base |= {
        "model": {"source": tiny_model},
        "rollout": base["rollout"]
        | {"max_input_length": 1700, "max_generate_length": 16, "max_sequence_length": 1800},
    }
    if kind is RunKind.FLEET:
        fleet = {"provider": "fleet", "max_turns": 2, "fleet": {"base_url": fleet_url}}
        return base | INLINE | {"environment": fleet}
    return base | {
        "engine": {"type": "torch"},
        "placement": {"type": "ray", "learner_ranks": 2},
        "environment": {"max_turns": 2},
    }


def common(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "data": {"env_keys": [ENV_KEY], "train_tasks_per_env": 60, "eval_tasks_per_env": 2},
        # With fewer turns most groups have nothing to teach.
        "environment": {"max_turns": 4},
        "rollout": {"n_samples_per_prompt": 4},
        "optimizer": {"lr": 1e-3},
        "schedule": {"total_steps": STEPS, "train_batch_size": 2, "mini_batch_size": 2},
        "eval": {"interval": 3, "decodings": [GREEDY]},
        "checkpoints": {"interval": 2, "keep_last": 9, "qualify": False},
    }
