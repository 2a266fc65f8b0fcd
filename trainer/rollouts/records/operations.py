"""Statistics of the operations of rollouts on their environments: latency and failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from hillclimb.protocol.environments import EnvHealth, OperationHealth
from trainer.rollouts.operation import EnvOperation, Kind
from trainer.rollouts.request import Rollout


def env_health(rollouts: Iterable[Rollout]) -> dict[str, EnvHealth]:
    """Return the health of each environment, by its key, from the rollouts that were started."""
    return {key: _health(group) for key, group in _by_env(rollouts).items()}


def latency_metrics(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the latency of tool calls per environment that had any (seconds).

    Calls of failed tries count too, and calls without a response count with the time waited.
    """
    metrics: dict[str, float] = {}
    for env_key, group in _by_env(rollouts).items():
        name = f"environment/{env_key.replace('/', '_')}/call_latency"
        seconds = [each.seconds for each in _operations(group, "call")]
        if seconds:
            metrics |= {f"{name}_p50": median(seconds), f"{name}_p95": percentile(seconds, 0.95)}
    return metrics


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _by_env(rollouts: Iterable[Rollout]) -> Mapping[str, list[Rollout]]:
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.trajectory.task.env_key, []).append(rollout)
    return groups


def _operations(rollouts: Iterable[Rollout], kind: Kind) -> list[EnvOperation]:
    return [each for rollout in rollouts for each in rollout.operations if each.kind == kind]


def _health(rollouts: Sequence[Rollout]) -> EnvHealth:
    prompts = [r.trajectory.prompt_length for r in rollouts if r.trajectory.prompt_length]
    tools = [rollout.num_tools for rollout in rollouts if rollout.num_tools]
    return EnvHealth(
        num_tools=max(tools, default=None),
        prompt_tokens_p50=median(prompts) if prompts else None,
        prompt_tokens_max=max(prompts, default=None),
        reset=_of_kind(rollouts, "reset"),
        call=_of_kind(rollouts, "call"),
        verification=_of_kind(rollouts, "verification"),
        infra_errors=dict(Counter(code for rollout in rollouts for code in rollout.infra_errors)),
    )


def _of_kind(rollouts: Sequence[Rollout], kind: Kind) -> OperationHealth:
    operations = _operations(rollouts, kind)
    seconds = [each.seconds for each in operations]
    return OperationHealth(
        num=len(operations),
        num_failed=sum(each.failed for each in operations),
        p50_s=round(median(seconds), 6) if seconds else None,
        p95_s=round(percentile(seconds, 0.95), 6) if seconds else None,
    )
