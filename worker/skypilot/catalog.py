"""Matches the machines of a cloud's price list to a candidate of the spec.

The machines are as skypilot 0.14.1 lists them. Pure: nothing here imports sky.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import CandidateSpec

PriceKey = tuple[str, str, int]
"""Cloud, GPU, and count of GPUs."""


def price_key(candidate: CandidateSpec) -> PriceKey:
    """Return the key of the price list that has the candidate's machines."""
    return candidate.cloud, candidate.gpu_name or "", candidate.gpus


def matching_offers(
    number: int, candidate: CandidateSpec, num_nodes: int, machines: Iterable[Any]
) -> Iterator[Offer]:
    """Yield the machines of a price list with the candidate's region, size and GPU count."""
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
