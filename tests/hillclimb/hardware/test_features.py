"""A candidate whose cloud lacks something is explained, not tried."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.hardware.features import FEATURES, eligible
from hillclimb.hardware.offers import Offer
from hillclimb.hardware.plan import Range, hardware_plan
from hillclimb.spec.backend.clouds import CLOUDS
from hillclimb.spec.backend.skypilot import SkyPilotSpec
from tests.hillclimb.hardware.rented import candidate, qwen3_8b, rented


def test_every_cloud_has_a_row() -> None:
    assert set(FEATURES) == set(CLOUDS)


@pytest.mark.parametrize(
    ("cloud", "num_nodes", "values", "sentence"),
    [
        ("runpod", 2, {}, "runpod supports no clusters of several nodes, and num_nodes is 2"),
        ("vast", 2, {}, "vast supports no clusters of several nodes"),
        ("primeintellect", 2, {}, "primeintellect supports no clusters of several nodes"),
        ("lambda", 1, {"use_spot": True}, "lambda has no spot machines: set use_spot to false"),
        ("slurm", 1, {"use_spot": True}, "slurm has no spot machines"),
        ("primeintellect", 1, {"image": "docker:lab/x:1"}, "primeintellect runs no Docker images"),
        ("lambda", 1, {"disk_gb": 500}, "a machine of lambda has a fixed disk: leave disk_gb"),
    ],
)
def test_what_a_cloud_lacks_is_said(
    cloud: str, num_nodes: int, values: dict[str, Any], sentence: str
) -> None:
    lacking = candidate(infra=cloud, **values)
    other = candidate(infra="aws")
    spec = SkyPilotSpec(candidates=(lacking, other), num_nodes=num_nodes)
    taken, sentences = eligible(spec.candidates, spec)
    assert taken == (other,)
    assert sentence in sentences[0]
    assert sentences[0].startswith(lacking.label)


def test_what_a_cluster_decides_is_left_to_it() -> None:
    spot = candidate(infra="k8s/prod", use_spot=True)
    image = candidate(infra="slurm/lab", image="docker:lab/x:1")
    spec = SkyPilotSpec(candidates=(spot, image))
    assert eligible(spec.candidates, spec) == ((spot, image), ())


def test_a_cloud_without_autodown_is_still_taken() -> None:
    spec = SkyPilotSpec(candidates=(candidate(infra="primeintellect"),))
    assert eligible(spec.candidates, spec)[1] == ()


def test_a_spec_whose_every_candidate_fails_is_refused_with_every_sentence() -> None:
    plan = hardware_plan(
        rented(
            {"infra": "runpod", "accelerators": "H100:8"},
            {"infra": "vast", "accelerators": "H100:8"},
            num_nodes=2,
        )
    )
    assert plan is not None
    assert plan.refusal is not None
    assert "H100:8 on runpod: runpod supports no clusters of several nodes" in plan.refusal
    assert "H100:8 on vast: vast supports no clusters of several nodes" in plan.refusal


def test_one_that_is_left_out_leaves_the_others() -> None:
    plan = hardware_plan(
        rented(
            {"infra": "runpod", "accelerators": "H100:8"},
            {"infra": "lambda", "accelerators": "H100:8"},
            num_nodes=2,
        )
    )
    assert plan is not None
    assert plan.refusal is None
    assert [each.infra for each in plan.eligible] == ["lambda"]
    assert "runpod supports no clusters of several nodes" in plan.reasons[0]


def test_sizes_left_open_are_what_the_estimate_needs() -> None:
    plan = hardware_plan(
        qwen3_8b(
            {"infra": "lambda", "accelerators": "H100:8"},
            {"infra": "aws", "accelerators": "H100:8"},
            {"infra": "gcp", "accelerators": "H100:8", "memory_gb": 1500, "disk_gb": 800},
        )
    )
    assert plan is not None
    fixed, open_, asked = plan.eligible
    need = plan.candidates[0].estimate
    assert need is not None
    assert need.memory_gib is not None
    assert need.disk_gib is not None
    assert 0 <= (fixed.memory_gb or 0) - need.memory_gib < 1
    assert fixed.disk_gb is None, "a machine of lambda has a fixed disk"
    assert 0 <= (open_.disk_gb or 0) - need.disk_gib < 1
    assert (asked.memory_gb, asked.disk_gb) == (1500, 800)


def offer(index: int, usd: float) -> Offer:
    return Offer(candidate=index, infra="x", sku=None, hourly_usd=usd)


def test_costs_are_a_range_over_what_is_taken() -> None:
    spec = qwen3_8b(
        {"infra": "lambda", "accelerators": "H100:8"},
        {"infra": "runpod", "accelerators": "H100:8"},
        {"infra": "aws", "accelerators": "H100:8", "max_hourly_usd": 60},
        schedule={"total_steps": 10},
    )
    offers = (offer(0, 23.92), offer(1, 19.12), offer(1, 21.0), offer(2, 98.32))
    plan = hardware_plan(spec, offers)
    assert plan is not None
    assert plan.hourly_usd == Range(19.12, 23.92)
    assert plan.longest_usd == Range(24 * 19.12, 24 * 23.92)
    assert "costs 98.32 USD an hour at least, more than max_hourly_usd 60" in plan.reasons[0]


def test_without_a_catalog_the_costs_are_unknown_and_nothing_is_too_dear() -> None:
    spec = qwen3_8b({"infra": "aws", "accelerators": "H100:8", "max_hourly_usd": 1})
    for offers in (None, ()):
        plan = hardware_plan(spec, offers)
        assert plan is not None
        assert plan.refusal is None
        assert (plan.hourly_usd, plan.longest_usd) == (None, None)


def test_a_runner_rents_nothing() -> None:
    assert hardware_plan(rented().model_copy(update={"backend": type(rented().backend)()})) is None
