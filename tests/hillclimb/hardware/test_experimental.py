"""Machines on which the trainer would end with `spec_rejected` are not rented."""

from __future__ import annotations

from typing import Any

import pytest

from api.admission.planning import check
from api.clusters.errors import NoEligibleHardware
from hillclimb.hardware.plan import hardware_plan
from tests.hillclimb.hardware.rented import rented

ON_GPUS = "no run with the locked versions of torch and vLLM was on a GPU"
PREBUILT = {"type": "prebuilt", "python": "/opt/trainer/bin/python"}


def backend(**skypilot: Any) -> dict[str, Any]:
    machines = {"candidates": [{"infra": "slurm/lab", "accelerators": "H100:8"}]}
    return {"type": "skypilot", "skypilot": machines | skypilot}


def test_gpus_are_refused_unless_they_are_asked_for_as_an_experiment() -> None:
    with pytest.raises(NoEligibleHardware, match=f"{ON_GPUS}.*set experimental to true"):
        check(rented(experimental=False))
    taken = check(rented(experimental=True)).plan
    assert taken is not None
    assert taken.refusal is None


def test_machines_without_gpus_beside_them_are_taken() -> None:
    machines = ({"infra": "lambda", "accelerators": "H100:8"}, {"infra": "aws", "cpus": 8})
    checked = check(rented(*machines, experimental=False))
    assert checked.plan is not None
    assert [each.label for each in checked.plan.eligible] == ["no GPU on aws"]
    assert any(f"H100:8 on lambda is left out: {ON_GPUS}" in each for each in checked.warnings)


def test_several_machines_are_an_experiment_too() -> None:
    plan = hardware_plan(rented({"infra": "aws", "cpus": 4}, num_nodes=2, experimental=False))
    assert plan is not None
    assert plan.refusal is not None
    assert "num_nodes is 2: set experimental to true to try it" in plan.refusal


def test_tasks_are_validated_without_a_model_and_anywhere() -> None:
    plan = hardware_plan(rented(kind="validate", experimental=False))
    assert plan is not None
    assert plan.refusal is None


def test_an_environment_that_is_not_ours_may_have_no_cuda_so_it_is_warned_of() -> None:
    checked = check(rented(backend=backend(trainer=PREBUILT), experimental=False))
    assert checked.plan is not None
    assert checked.plan.refusal is None
    told = "the trainer refuses H100:8 on slurm/lab if the environment there can use its GPUs"
    assert any(told in each for each in checked.warnings)
    tried = check(rented(backend=backend(trainer=PREBUILT), experimental=True))
    assert not any(told in each for each in tried.warnings)


@pytest.mark.parametrize(
    ("machine", "is_told"),
    [
        ({"infra": "lambda"}, True),
        ({"infra": "aws", "image": "docker:mine/trainer:1"}, False),
        ({"infra": "slurm/lab"}, False),
    ],
)
def test_a_cloud_s_machine_may_lack_what_is_called_prebuilt(
    machine: dict[str, Any], is_told: bool
) -> None:
    checked = check(rented(backend=backend(trainer=PREBUILT, candidates=[machine])))
    told = "must already have /opt/trainer/bin/python"
    assert any(told in each for each in checked.warnings) is is_told
