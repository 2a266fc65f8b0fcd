"""What a spec may say of machines, and what it may not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.backend.skypilot import BudgetSpec, SkyPilotSpec
from tests.fixtures.factories import make_spec
from tests.hillclimb.hardware.rented import candidate, rented


def test_a_candidate_says_what_it_is() -> None:
    spot = candidate("H100:8", infra="k8s/prod", use_spot=True)
    assert (spot.cloud, spot.gpu_name, spot.gpus) == ("kubernetes", "H100", 8)
    assert spot.label == "H100:8 on k8s/prod (spot)"
    bare = candidate(None, infra="slurm/skytest")
    assert (bare.cloud, bare.gpu_name, bare.gpus) == ("slurm", None, 0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "skypilot"}, "backend.type skypilot needs backend.skypilot.candidates"),
    (
        {"type": "runner", "skypilot": {"candidates": [{"infra": "lambda"}]}},
        "backend.skypilot is read by the type skypilot, and this is runner",
    ),
    (
        {"type": "skypilot", "skypilot": {"candidates": []}},
        "at least 1 item",
    ),
    (
        {"type": "skypilot", "skypilot": {"candidates": [{"infra": "azure"}]}},
        "begins with a cloud that is not supported: use one of aws, gcp",
    ),
    (
        {"type": "skypilot", "skypilot": {"candidates": [{"infra": "lambda", "gpu": 1}]}},
        "Extra inputs are not permitted",
    ),
]


@pytest.mark.parametrize(("backend", "sentence"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_backend_that_makes_no_sense_is_refused(backend: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        make_spec(backend=backend)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"accelerators": "H100"}, "'H100' cannot be read: write the GPU's name and how many"),
        ({"accelerators": "8xH100"}, "as in H100:8"),
        ({"accelerators": {"H100": 8}}, "{'H100': 8} cannot be read: write the GPU's name"),
        ({"infra": "AWS"}, "'AWS' cannot be read: write CLOUD, CLOUD/REGION or"),
        ({"infra": "aws/"}, "as in aws/us-east-1"),
        ({"infra": "lambda-labs"}, "with one of the clouds aws, gcp, kubernetes, lambda"),
        ({"image": "pytorch/pytorch"}, "write docker:REGISTRY/NAME:TAG"),
    ],
)
def test_a_machine_that_cannot_be_read_is_told_how_to_write_it(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)) as refused:
        candidate(**values)
    assert refused.value.error_count() == 1


@pytest.mark.parametrize(
    ("install", "sentence"),
    [
        ({"type": "prebuilt"}, "trainer.type prebuilt needs trainer.python"),
        ({"type": "wheel", "python": "/opt/x/bin/python"}, "trainer.python is read only with"),
        ({"type": "image"}, "H100:8 on lambda names none: set candidates.image"),
    ],
)
def test_an_environment_from_nowhere_is_refused(install: dict[str, str], sentence: str) -> None:
    machine = {"infra": "lambda", "accelerators": "H100:8"}
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        SkyPilotSpec.model_validate({"candidates": [machine], "trainer": install})


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        (
            {"engine": {"data_parallel_size": 8}, "placement": {"learner_ranks": 4}},
            "need 12 GPUs, and 1 x H100:8 on lambda has 8",
        ),
        (
            {
                "engine": {
                    "type": "vllm",
                    "weight_transport": "ipc",
                    "data_parallel_size": 9,
                },
                "placement": {"learner_ranks": 9},
                "experimental": True,
            },
            "need 9 GPUs",
        ),
        (
            {"engine": {"type": "vllm", "tensor_parallel_size": 16}, "experimental": True},
            "need 17 GPUs",
        ),
    ],
)
def test_workers_that_have_no_place_are_refused(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        rented(**sections)


def test_an_engine_stays_on_one_node() -> None:
    wide = {"type": "vllm", "tensor_parallel_size": 16, "weight_transport": "nccl"}
    with pytest.raises(ValidationError, match="needs that many GPUs on one node"):
        rented(num_nodes=3, engine=wide, experimental=True)


def test_weights_cannot_pass_through_the_memory_of_two_machines() -> None:
    wide = {"engine": {"data_parallel_size": 8}, "placement": {"learner_ranks": 8}}
    with pytest.raises(ValidationError, match="passes weights through the memory of one machine"):
        rented(num_nodes=2, **wide)
    over_the_net = {"type": "vllm", "data_parallel_size": 8, "weight_transport": "nccl"}
    assert rented(num_nodes=2, **(wide | {"engine": over_the_net}), experimental=True)


def test_a_gang_needs_workers_that_can_spread() -> None:
    with pytest.raises(ValidationError, match=r"set placement\.type to ray or num_nodes to 1"):
        rented(num_nodes=2, placement={"type": "inline"})


def test_one_candidate_with_a_place_is_enough() -> None:
    small = {"infra": "lambda", "accelerators": "H100:1"}
    large = {"infra": "runpod", "accelerators": "H100:8"}
    assert rented(small, large, engine={"data_parallel_size": 4})


def test_machines_without_gpus_hold_any_number_of_workers() -> None:
    assert rented({"infra": "aws"}, engine={"data_parallel_size": 4})


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        ({}, "limits nothing without usd or hours"),
        ({"usd": 10, "warn_at": [0.8, 0.5]}, "must rise, between 0 and 1"),
        ({"usd": 10, "warn_at": [0.5, 1.0]}, "must rise, between 0 and 1"),
    ],
)
def test_a_budget_that_limits_nothing_is_refused(budget: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        BudgetSpec.model_validate(budget)


def test_a_budget_is_for_what_is_rented() -> None:
    assert rented(budget={"hours": 20}).budget == BudgetSpec(hours=20)
    with pytest.raises(ValidationError, match="a budget limits the cost of rented clusters"):
        make_spec(budget={"usd": 5})
