"""Evenness of a step's tokens over the experts of each layer.

Legend: L layers, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.learners.model.experts import ExpertLoads
from trainer.learners.model.sharding import Ranks

_PREFIX = "policy/experts"


def expert_metrics(
    loads: ExpertLoads, layout: ExpertLayout, ranks: Ranks, *, replays: bool
) -> dict[str, float]:
    """Return the metrics of each layer with experts and of all, over all ranks.

    A prompt that rollouts share counts once where they share a pass. Without a counted token there
    are none; every rank calls it.
    """
    tokens_LE = ranks.sum_(loads.tokens_LE).cpu().double()
    strange_L = ranks.sum_(loads.strange_L).cpu().double()
    if not tokens_LE.any():
        return {}
    layers = {index: dict(_of_layer(tokens_LE[index])) for index in layout.layers}
    metrics = {
        f"{_PREFIX}/layer_{index}/{name}": value
        for index, own in layers.items()
        for name, value in own.items()
    }
    metrics |= {
        f"{_PREFIX}/max_load": max(own["max_load"] for own in layers.values()),
        f"{_PREFIX}/load_entropy": min(own["load_entropy"] for own in layers.values()),
        f"{_PREFIX}/num_idle": sum(own["num_idle"] for own in layers.values()),
    }
    if replays:
        metrics[f"{_PREFIX}/replayed_otherwise"] = float(strange_L.sum() / tokens_LE.sum())
    return metrics


def _of_layer(tokens_E: torch.Tensor) -> Iterator[tuple[str, float]]:
    """Yield the busiest expert's load over the mean one, entropy over its maximum, idle experts."""
    shares_E = tokens_E / tokens_E.sum()
    num = len(shares_E)
    entropy = -torch.special.xlogy(shares_E, shares_E).sum()
    yield "max_load", float(shares_E.max() * num)
    yield "load_entropy", float(entropy / torch.tensor(float(num)).log()) if num > 1 else 1.0
    yield "num_idle", float((tokens_E == 0).sum())
