"""The metrics of `aggregated_results.jsonl`, with SkyRL's names, order and rounding.

`pass_at_n` is SkyRL's: the share of tasks of which any rollout has a positive reward, however many
rollouts a task has. Ours (`hillclimb.stats.pass_rate`) is unbiased and needs n rollouts per task.
Source: skyrl_train/metrics/reward_metrics.py and evaluate.py in fleet-ai/SkyRL at 1d3b19e.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hillclimb.stats.trajectories.skyrl.layout import file_stem
from hillclimb.stats.trajectories.skyrl.sums import mean, variance

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A rollout's reward with its task and environment."""

    env_key: str
    task_key: str
    value: float


def eval_metrics(rewards: Sequence[Reward], *, num_samples: int) -> dict[str, float]:
    """Return the metrics of one evaluation: per environment in order of appearance, then `all`.

    `num_samples` is the n of the name `pass_at_n`.
    """
    by_env: dict[str, list[Reward]] = {}
    for each in rewards:
        by_env.setdefault(each.env_key, []).append(each)
    metrics: dict[str, float] = {}
    for env_key, group in by_env.items():
        for name, value in _metrics(group, num_samples).items():
            metrics[f"eval/{file_stem(env_key)}/{name}"] = value
    for name, value in _metrics(rewards, num_samples).items():
        if name != "signal_ratio":  # SkyRL leaves it out over all environments
            metrics[f"eval/{ALL}/{name}"] = value
    return metrics


def largest_group(rewards: Iterable[Reward]) -> int:
    """Return the most rollouts of one task: the n of `pass_at_n` where no file names it."""
    return max(map(len, _groups(rewards).values()), default=0)


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Return the one line of `aggregated_results.jsonl`, with its line end."""
    return json.dumps(dict(metrics), ensure_ascii=False) + "\n"


def _metrics(rewards: Sequence[Reward], num_samples: int) -> dict[str, float]:
    groups = list(_groups(rewards).values())
    variances = [variance(group) for group in groups if len(group) > 1]
    positive = [each.value for each in rewards if each.value > 0]
    num_passed = sum(any(value > 0 for value in group) for group in groups)
    return {
        f"pass_at_{num_samples}": num_passed / len(groups) if groups else 0.0,
        "variance_per_prompt": mean(variances) if variances else 0.0,
        "signal_ratio": sum(v > 0 for v in variances) / len(variances) if variances else 0.0,
        "mean_positive_reward": mean(positive) if positive else 0.0,
    }


def _groups(rewards: Iterable[Reward]) -> dict[tuple[str, str], list[float]]:
    groups: dict[tuple[str, str], list[float]] = {}
    for each in rewards:
        groups.setdefault((each.env_key, each.task_key), []).append(each.value)
    return groups
