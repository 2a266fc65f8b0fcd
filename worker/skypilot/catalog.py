"""Which machines of a cloud's price list are those that a candidate asks for.

The machines are as skypilot 0.14.1 lists them. Pure: nothing here imports sky.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.spec import CandidateSpec

PriceKey = tuple[str, str, int]
"""Cloud, GPU, and how many of them."""


def price_key(candidate: CandidateSpec) -> PriceKey:
    """Return what a cloud's list is asked for."""
    return candidate.cloud, candidate.gpu_name or "", candidate.gpus


def priced(
    number: int, candidate: CandidateSpec, num_nodes: int, machines: Iterable[Any]
) -> Iterator[Offer]:
    """Give the offers of a cloud's list that are of the candidate's place, size and kind."""
    region = candidate.infra.split("/")[1] if "/" in candidate.infra else None
    for machine in machines:
        # Slurm and Kubernetes name their cluster in the infra, and a partition here.
        is_elsewhere = region not in (None, machine.region) and machine.instance_type is not None
        is_small = (candidate.cpus or 0) > (machine.cpu_count or 0) or (
            candidate.memory_gb or 0
        ) > (machine.memory or 0)
        usd = machine.spot_price if candidate.use_spot else machine.price
        if is_elsewhere or is_small or machine.accelerator_count != candidate.gpus:
            continue
        if usd is None or usd != usd or usd * num_nodes > (candidate.max_hourly_usd or 1e12):
            continue
        in_region = f"{candidate.cloud}/{machine.region}"
        yield Offer(
            candidate=number,
            infra=candidate.infra if machine.instance_type is None else in_region,
            sku=machine.instance_type,
            hourly_usd=round(float(usd) * num_nodes, 4),
        )
