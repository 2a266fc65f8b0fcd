"""Coverage metrics: the share of a run's tasks drawn so far."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.inputs.tasks.pools import TaskPool


def coverage_metrics(pools: Mapping[str, TaskPool]) -> dict[str, float]:
    """Return shares of tasks drawn at least once, and epochs: 1.5 is halfway in the second.

    `trainer/epoch` counts over all tasks together, `data/{env}/epoch` each environment's own.
    """
    metrics: dict[str, float] = {}
    for env_key, pool in pools.items():
        name = env_key.replace("/", "_")
        metrics[f"data/{name}/coverage"] = pool.num_covered / len(pool)
        metrics[f"data/{name}/epoch"] = pool.num_drawn / len(pool)
    num_tasks = sum(len(pool) for pool in pools.values())
    metrics["data/coverage"] = sum(pool.num_covered for pool in pools.values()) / num_tasks
    metrics["trainer/epoch"] = sum(pool.num_drawn for pool in pools.values()) / num_tasks
    return metrics
