"""Specs that name what is on this machine are not rented where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.hardware.plan import HardwarePlan, hardware_plan
from tests.fixtures.factories import make_spec

FLEET = {"environment": {"provider": "fleet", "fleet": {"base_url": "http://127.0.0.1:8720"}}}
OPENENV = {
    "data": {"env_keys": ["search"]},
    "environment": {
        "provider": "openenv",
        "openenv": {"search": {"url": "http://localhost:8765"}},
    },
}
TEACHER = {
    "kind": "validate",
    "validation": {
        "teacher": {"type": "openai", "base_url": "http://127.0.0.1:8000/v1", "model": "qwen3"}
    },
}
PATH = {"model": {"source": "/models/qwen"}}
CASES = [
    (FLEET, "environment.fleet.base_url is http://127.0.0.1:8720"),
    (OPENENV, "environment.openenv.search.url is http://localhost:8765"),
    (TEACHER, "validation.teacher.base_url is http://127.0.0.1:8000/v1"),
    (PATH, "model.source /models/qwen is a path"),
]


def plan(sections: dict[str, Any], *candidates: dict[str, Any]) -> HardwarePlan:
    backend = {"type": "skypilot", "skypilot": {"candidates": list(candidates)}}
    found = hardware_plan(make_spec(**({"backend": backend, "experimental": True} | sections)))
    assert found is not None
    return found


@pytest.mark.parametrize(("sections", "says"), CASES)
def test_a_fresh_machine_of_a_cloud_has_nothing(sections: dict[str, Any], says: str) -> None:
    found = plan(sections, {"infra": "lambda"}, {"infra": "slurm/lab"})
    assert [each.infra for each in found.eligible] == ["slurm/lab"], "a cluster of one's own may"
    assert says in found.reasons[0]
    assert plan(sections, {"infra": "lambda"}).refusal is not None


@pytest.mark.parametrize(("sections", "says"), CASES)
def test_a_container_and_a_cluster_of_ones_own_may_have_it(
    sections: dict[str, Any], says: str
) -> None:
    mine = {"infra": "aws", "image": "docker:mine/trainer:1"}
    found = plan(sections, mine, {"infra": "k8s/lab"})
    assert found.reasons == (), says


def test_what_the_run_does_not_ask_is_not_looked_at() -> None:
    told = {"validation": TEACHER["validation"]}
    assert plan(told, {"infra": "lambda"}).refusal is None
    assert plan(PATH | {"kind": "validate"}, {"infra": "lambda"}).refusal is None
    assert plan(PATH | {"kind": "preview"}, {"infra": "lambda"}).refusal is None
