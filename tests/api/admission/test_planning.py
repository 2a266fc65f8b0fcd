"""What a plan warns of: limits that its own estimate passes, machines that nothing uses."""

from __future__ import annotations

from typing import Any

from api.clusters.planning import check
from tests.contract.clusters.rented import rented
from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.presets import preset
from trainer.contract.spec import RunSpec

LAMBDA = {"infra": "lambda", "accelerators": "H100:8"}
OFFERS = (Offer(candidate=0, infra="lambda", sku=None, hourly_usd=20.0),)


def told(spec: dict[str, Any]) -> tuple[str, ...]:
    return check(RunSpec.model_validate(spec), OFFERS).warnings


def large(
    step_timeout_s: float = 86_400, max_hours: float = 72.0, **sections: Any
) -> dict[str, Any]:
    """Qwen3-8B on eight H100: steps of minutes to hours."""
    spec = preset("qwen3-8b-8xh100").spec
    spec["schedule"]["step_timeout_s"] = step_timeout_s
    spec["backend"]["skypilot"] |= {"candidates": [LAMBDA], "max_hours": max_hours}
    return spec | sections


def test_a_step_that_may_outlast_its_deadline_is_told() -> None:
    (warning,) = told(large(step_timeout_s=20_000))
    assert "s by the estimate, and schedule.step_timeout_s is 20000: the run pauses" in warning


def test_limits_that_all_steps_pass_at_best_are_told() -> None:
    assert told(large(budget={"usd": 1e6, "hours": 1e5})) == ()
    few = told(large(max_hours=1.0, budget={"usd": 1, "hours": 2}))
    settings = ("backend.skypilot.max_hours is 1:", "budget.hours is 2:", "budget.usd is 1:")
    assert [any(each in warning for warning in few) for each in settings] == [True] * 3
    assert len(few) == 3


def test_a_validation_uses_no_gpu() -> None:
    (warning,) = check(rented(kind="validate")).warnings
    assert warning == "8 GPUs are rented with H100:8 on lambda, and the run's workers take 0."
