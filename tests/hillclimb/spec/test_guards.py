"""The section `guards`: defaults that end nothing, and impossible windows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from hillclimb.spec.monitoring.guards import GUARDS, GuardsSpec


def test_by_default_every_guard_reports_and_none_acts() -> None:
    assert {getattr(GuardsSpec(), name).policy for name in GUARDS} == {"alert"}


@pytest.mark.parametrize("name", ["infra_errors", "ungraded"])
def test_a_window_that_can_never_have_enough_rollouts_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="lower the first or raise the second"):
        GuardsSpec.model_validate({name: {"window_rollouts": 20}})


@pytest.mark.parametrize(
    "body",
    [
        {"hopeless": {"policy": "end"}},
        {"hopeless": {"max_chance": 0.0}},
        {"reward_collapse": {"window_steps": 2}},
        {"stuck_progress": {"factor": 1.0}},
        {"no_signal": {"step": 3}},
    ],
)
def test_what_no_guard_can_do_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GuardsSpec.model_validate(body)
