"""Reports a completed step: metrics, timing, outcomes and the estimated time left."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hillclimb.protocol.events import ComputeSpent, StepCompleted
from trainer.attempt.context import AttemptContext
from trainer.engines.base import EngineStats
from trainer.jobs.rollout_service import RolloutResults
from trainer.jobs.step_schedule import Schedule
from trainer.jobs.train.metrics import Metrics, provider_metrics, rollout_metrics
from trainer.rollouts.records.operations import latency_metrics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReporter:
    """Emits `step.completed`."""

    context: AttemptContext

    def report(
        self,
        step: int,
        result: RolloutResults,
        extra: Mapping[str, float],
        compute: ComputeSpent | None = None,
    ) -> None:
        """Report a step from its rollouts, the metrics of learner and engine, and what it took.

        Evaluations and checkpoints since the step before are in its `timing/...` too. Metrics
        that are not finite are left out: JSON has no such numbers.
        """
        spec, clock = self.context.spec, self.context.clock
        schedule, timing = Schedule.of(spec), clock.take()
        metrics: Metrics = rollout_metrics(
            result.outcomes_by_group,
            n=spec.rollout.n_samples_per_prompt,
            pass_threshold=spec.eval.pass_threshold,
        )
        num_tokens = sum(row.num_tokens for row in result.rows)
        metrics |= latency_metrics(result.rollouts)
        metrics |= {**extra, **timing, **provider_metrics(_measures(result))}
        metrics["trainer/global_step"] = float(step)
        metrics["trainer/tokens_per_second"] = num_tokens / timing["timing/step"]
        self.context.journal.emit(
            StepCompleted(
                step=step,
                metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
                outcomes=result.rows,
                compute=compute,
                eta_s=clock.eta_s(
                    steps_left=schedule.total - step,
                    evals_left=schedule.evals_after(step) + schedule.evaluates_after(step),
                ),
            )
        )
        rate = metrics.get("reward/avg_pass_at_1", math.nan)
        _log.info(
            "step %d/%d: pass@1 %.3f in %.1f s", step, schedule.total, rate, timing["timing/step"]
        )


def _measures(result: RolloutResults) -> dict[str, list[Mapping[str, float]]]:
    measures: dict[str, list[Mapping[str, float]]] = {}
    for rollout in result.rollouts:
        measures.setdefault(rollout.trajectory.task.env_key, []).append(rollout.measures)
    return measures


def engine_metrics(before: EngineStats, after: EngineStats) -> Metrics:
    """Return tokens, busy seconds and waits of the engines between two readings of their counters.

    Those of the cache are left out where it has room for every rollout.
    """
    busy_s = after.busy_s - before.busy_s
    cache: Metrics = {}
    if after.num_cache_tokens:
        cache = {
            "generate/num_cache_tokens": float(after.num_cache_tokens),
            "generate/num_cache_waits": float(after.num_cache_waits - before.num_cache_waits),
            "generate/cache_wait_s": after.cache_wait_s - before.cache_wait_s,
        }
    if after.num_cache_tokens and busy_s > 0.0:
        reserved = after.reserved_token_s - before.reserved_token_s
        cache["generate/avg_reserved_tokens"] = reserved / busy_s
    return cache | {
        "generate/num_sampled_tokens": float(after.num_sampled_tokens - before.num_sampled_tokens),
        "generate/num_prefill_tokens": float(after.num_prefill_tokens - before.num_prefill_tokens),
        "generate/num_cached_tokens": float(after.num_cached_tokens - before.num_cached_tokens),
        "timing/engine_busy": busy_s,
    }
