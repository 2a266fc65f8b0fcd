"""What rollouts asked of their environments, one operation at a time, and how long it took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from trainer.contract.health import EnvHealth, OperationHealth

if TYPE_CHECKING:
    # A rollout is made of these operations, so its file imports this one.
    from trainer.rollouts.wave import Rollout

Kind = Literal["reset", "call", "verification"]


@dataclass(frozen=True, slots=True)
class EnvOperation:
    """One operation: the time to its answer (seconds), and whether it failed.

    It failed if there was an infra error, or no score in the verifier's answer.

    Seconds in which the event loop could not have received the answer are not counted.
    """

    kind: Kind
    seconds: float
    failed: bool


def env_health(rollouts: Iterable[Rollout]) -> dict[str, EnvHealth]:
    """Return how each environment behaved, by its key; rollouts never begun say nothing."""
    return {key: _health(group) for key, group in _by_env(rollouts).items()}


def latency_metrics(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the time to the answer of a tool call per environment (seconds), where one was made.

    Retried tries count too, and calls that never were answered count with the time waited.
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
    found = _operations(rollouts, kind)
    seconds = [each.seconds for each in found]
    return OperationHealth(
        num=len(found),
        num_failed=sum(each.failed for each in found),
        p50_s=round(median(seconds), 6) if seconds else None,
        p95_s=round(percentile(seconds, 0.95), 6) if seconds else None,
    )
