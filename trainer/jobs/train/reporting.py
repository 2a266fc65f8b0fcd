"""The event of a completed step: what it measured, where its time went, what is left."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.contract.events import StepCompleted
from trainer.contract.spec import RunSpec
from trainer.engines.base import EngineStats
from trainer.metrics import Metrics, provider_metrics, rollout_metrics
from trainer.rollouts.operations import latency_metrics
from trainer.schedule import Schedule
from trainer.sinks.journal import Journal
from trainer.timing import Clock
from trainer.waves import WaveResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReporter:
    """Emits `step.completed`."""

    spec: RunSpec
    journal: Journal
    clock: Clock

    def report(self, step: int, result: WaveResult, extra: Mapping[str, float]) -> None:
        """Report a step, given its rollouts and the metrics of learner and engine.

        Evaluations and checkpoints since the step before are in its `timing/...` too. Metrics
        that are not finite are left out: JSON has no such numbers.
        """
        schedule, timing = Schedule.of(self.spec), self.clock.take()
        metrics: Metrics = rollout_metrics(
            result.groups,
            n=self.spec.rollout.n_samples_per_prompt,
            pass_threshold=self.spec.eval.pass_threshold,
        )
        num_tokens = sum(row.num_tokens for row in result.rows)
        metrics |= latency_metrics(rollout for group in result.rollouts for rollout in group)
        metrics |= {**extra, **timing, **provider_metrics(_measures(result))}
        metrics["trainer/global_step"] = float(step)
        metrics["trainer/tokens_per_second"] = num_tokens / timing["timing/step"]
        self.journal.emit(
            StepCompleted,
            step=step,
            metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
            outcomes=result.rows,
            eta_s=self.clock.eta_s(
                steps_left=schedule.total - step,
                evals_left=schedule.evals_after(step) + schedule.evaluates_after(step),
            ),
        )
        rate = metrics.get("reward/avg_pass_at_1", math.nan)
        _log.info(
            "step %d/%d: pass@1 %.3f in %.1f s", step, schedule.total, rate, timing["timing/step"]
        )


def _measures(result: WaveResult) -> dict[str, list[Mapping[str, float]]]:
    found: dict[str, list[Mapping[str, float]]] = {}
    for rollout in (rollout for group in result.rollouts for rollout in group):
        found.setdefault(rollout.trajectory.task.env_key, []).append(rollout.measures)
    return found


def engine_metrics(before: EngineStats, after: EngineStats) -> Metrics:
    """Return what an engine did between two readings of its counters."""
    return {
        "generate/num_sampled_tokens": float(after.num_sampled_tokens - before.num_sampled_tokens),
        "generate/num_prefill_tokens": float(after.num_prefill_tokens - before.num_prefill_tokens),
        "generate/num_cached_tokens": float(after.num_cached_tokens - before.num_cached_tokens),
        "timing/engine_busy": after.busy_s - before.busy_s,
    }
