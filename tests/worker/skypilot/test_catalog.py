"""Which machines of a price list a candidate asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hillclimb.spec.backend.skypilot import CandidateSpec
from worker.skypilot.catalog import matching_offers

ON_AWS = CandidateSpec(infra="aws/us-east-1", accelerators="H100:8", use_spot=True, disk_gb=500)


def machine(region: str, price: float | None, **changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "instance_type": "p5.48xlarge",
        "accelerator_count": 8.0,
        "cpu_count": 192.0,
        "memory": 2048.0,
        "region": region,
        "price": price,
        "spot_price": 20.0,
    }
    return SimpleNamespace(**(values | changes))


def test_prices_are_those_of_the_region_the_size_and_the_kind() -> None:
    machines = [
        machine("us-east-1", 55.0),
        machine("us-west-2", 50.0),
        machine("us-east-1", 5.0, accelerator_count=4.0),
        machine("us-east-1", 45.0, spot_price=float("nan")),
    ]
    (spot,) = matching_offers(3, ON_AWS, 2, machines)
    assert (spot.candidate, spot.infra, spot.sku) == (3, "aws/us-east-1", "p5.48xlarge")
    assert spot.hourly_usd == 40.0
    anywhere = CandidateSpec(infra="aws", accelerators="H100:8", max_hourly_usd=105)
    found = list(matching_offers(0, anywhere, 2, machines))
    assert [(each.infra, each.hourly_usd) for each in found] == [
        ("aws/us-west-2", 100.0),
        ("aws/us-east-1", 90.0),
    ]
    big = CandidateSpec(infra="aws", accelerators="H100:8", memory_gb=4096)
    assert list(matching_offers(0, big, 1, machines)) == []
