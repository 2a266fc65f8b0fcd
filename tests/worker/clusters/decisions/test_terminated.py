"""A terminated cluster stays so: its run may have another one by now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.worker.clusters.decisions.test_decide import LONG_AFTER, SEEN, UP, job, observing
from worker.clusters import transitions
from worker.clusters.decide import Wait, decide
from worker.clusters.view import ClusterObserved, ClusterState
from worker.deadlines import NO_RECHECK
from worker.skypilot.port import RequestReport, RequestState


@pytest.mark.parametrize("is_needed", [True, False])
@pytest.mark.parametrize("was_launched", [True, False])
@pytest.mark.parametrize(
    "known",
    [
        {},
        {"launches": ("r2",)},
        {"observed_cluster": ClusterObserved(SEEN)},
        {"launches": (), "observed_cluster": ClusterObserved(None)},
        {"jobs": (job(), job(2))},
        {"launch_report": RequestReport(state=RequestState.FORGOTTEN)},
        {"is_launch_recorded": True},
    ],
)
def test_whatever_is_observed_nothing_is_called_and_nothing_changes(
    known: dict[str, Any], was_launched: bool, is_needed: bool
) -> None:
    view = observing(replace(UP, state=ClusterState.TERMINATED, is_needed=is_needed), **known)
    if not was_launched:
        view = replace(view, launch_requested_at=None, running_at=None, launch_tries=0)
    assert decide(view, LONG_AFTER) == Wait(NO_RECHECK, None)
    assert transitions.apply_sweep(view, SEEN, LONG_AFTER).state is ClusterState.TERMINATED
