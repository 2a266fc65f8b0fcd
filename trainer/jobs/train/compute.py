"""Compute spent by engines and learner, from one report to the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.hardware.model.shapes import ModelShape, UnknownShape, shape_of_config
from hillclimb.hardware.model.speed.flops import forward_flops
from hillclimb.protocol.events import ComputeSpent
from hillclimb.protocol.outcomes import OutcomeRow, StopReason
from trainer.algo.sequences import Batch
from trainer.engines.base import EngineStats
from trainer.jobs.rollout_service import RolloutResults
from trainer.rollouts.groups.resampling import RolloutGroup

FLOPS = "policy/flops"
"""The learner's metric of what its updates took."""


@dataclass(slots=True, kw_only=True)
class ComputeMeter:
    """Reads the engines' counters; every token is in exactly one report."""

    read: Callable[[], EngineStats]
    shape: ModelShape | None
    """The policy's; None where its config does not tell."""
    is_overlapped: bool
    """Whether rollouts of later steps go on during an evaluation."""
    _sampled: int = 0
    _prefilled: int = 0
    _cached: int = 0
    _pairs: int = 0

    def of_step(
        self,
        result: RolloutResults,
        dropped: Sequence[RolloutGroup],
        *,
        learned: frozenset[str],
        batch: Batch,
        metrics: Mapping[str, float],
    ) -> ComputeSpent:
        """Return the compute since the last report, with the counts of a step's rollouts.

        `dropped` are the last groups of `result`, which resampling replaced, `learned` the ids of
        the rollouts in `batch`, `metrics` those of its update.
        """
        batch_rows = result.outcomes_by_group[: len(result.groups) - len(dropped)]
        return self._take(1.0).model_copy(
            update={
                **_rollouts(result.rows),
                "num_learned": len(learned),
                "num_resampled": sum(map(len, dropped)),
                "num_ungraded": sum(row.score is None for group in batch_rows for row in group),
                "num_trained_tokens": sum(
                    len(sequence.token_ids) for part in batch.mini_batches for sequence in part
                ),
                "train_flops": metrics.get(FLOPS, None if batch.num_sequences else 0.0),
            }
        )

    def of_eval(self, rows: Sequence[OutcomeRow], *, num_discarded: int = 0) -> ComputeSpent:
        """Return the compute of an evaluation.

        `num_discarded` counts its begun rollouts that have no row, because it ended early.
        Where rollouts of later steps went on beside it, its part of the tokens drawn is its part of
        everything, and the rest is left to the next report.
        """
        share = 1.0
        drawn = self.read().num_sampled_tokens - self._sampled
        if self.is_overlapped and drawn:
            share = min(1.0, sum(row.num_tokens for row in rows) / drawn)
        made = _rollouts(rows)
        counts = made | {
            "num_rollouts": made["num_rollouts"] + num_discarded,
            "num_ungraded": sum(row.score is None for row in _started(rows)),
            "train_flops": 0.0,
        }
        return self._take(share).model_copy(update=counts)

    def remainder(self) -> ComputeSpent | None:
        """Return what no report has counted, such as a step under way; None for nothing."""
        spent = self._take(1.0)
        tokens = spent.num_sampled_tokens + spent.num_prefill_tokens
        return spent.model_copy(update={"train_flops": 0.0}) if tokens else None

    def _take(self, share: float) -> ComputeSpent:
        now = self.read()
        sampled = round(share * (now.num_sampled_tokens - self._sampled))
        prefilled = round(share * (now.num_prefill_tokens - self._prefilled))
        cached = round(share * (now.num_cached_tokens - self._cached))
        pairs = round(share * (now.num_attended_pairs - self._pairs))
        self._sampled += sampled
        self._prefilled += prefilled
        self._cached += cached
        self._pairs += pairs
        flops = None
        if self.shape is not None:
            flops = forward_flops(
                self.shape, num_tokens=sampled + prefilled, num_outputs=sampled, num_pairs=pairs
            )
        return ComputeSpent(
            num_sampled_tokens=sampled,
            num_prefill_tokens=prefilled,
            num_cached_tokens=cached,
            rollout_flops=flops,
        )


def read_shape(model_dir: Path) -> ModelShape | None:
    """Return the shape of the model whose config is in the directory; None where it has none."""
    try:
        return shape_of_config(json.loads((model_dir / "config.json").read_bytes()))
    except (OSError, ValueError, UnknownShape):
        return None


def _started(rows: Iterable[OutcomeRow]) -> list[OutcomeRow]:
    return [row for row in rows if row.stop_reason is not StopReason.NOT_STARTED]


def _rollouts(rows: Sequence[OutcomeRow]) -> dict[str, int]:
    started = _started(rows)
    return {
        "num_rollouts": len(started),
        "num_lost_tries": sum(row.num_infra_retries for row in started),
    }
