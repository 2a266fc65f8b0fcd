"""One tick as the worker makes it, on views in memory: decide, carry out, fold, commit."""

from __future__ import annotations

from collections.abc import Callable

from tests.worker.clusters.scripted import ScriptedClouds, plan_of
from worker.clusters import transitions
from worker.clusters.decide import (
    Action,
    CancelDuplicates,
    CloudAction,
    GetCluster,
    GetLaunch,
    GetTerminationFault,
    LaunchCluster,
    ListJobs,
    ListLaunches,
    RecordLaunch,
    TerminateCluster,
    Wait,
    decide,
)
from worker.clusters.execute import execute
from worker.clusters.view import ClusterView, LaunchRecorded, Observation

MAX_ACTIONS = 20
"""A tick that takes more than this would never end."""
CLOUD_ACTIONS = (
    *(
        ListLaunches,
        GetCluster,
        ListJobs,
        GetLaunch,
        LaunchCluster,
        CancelDuplicates,
        TerminateCluster,
        GetTerminationFault,
    ),
)


class CutOff(Exception):
    """The worker was killed."""


def tick(
    view: ClusterView,
    clouds: ScriptedClouds,
    commit: Callable[[ClusterView], None],
    cut_after: int = MAX_ACTIONS,
) -> list[Action]:
    """Work until there is nothing to do; raises CutOff after so many actions."""
    view = transitions.begin(view)
    taken: list[Action] = []
    while True:
        action = decide(view, clouds.now)
        taken.append(action)
        if isinstance(action, Wait):
            commit(view)
            return taken
        assert len(taken) < MAX_ACTIONS, taken
        if isinstance(action, RecordLaunch):
            view = transitions.apply_observation(view, LaunchRecorded(), clouds.now)
            commit(view)
        elif isinstance(action, CLOUD_ACTIONS):
            view = transitions.apply_observation(view, _perform(action, view, clouds), clouds.now)
        else:
            view = transitions.apply_transition(view, action, clouds.now)
        if len(taken) > cut_after:
            raise CutOff


def _perform(action: CloudAction, view: ClusterView, clouds: ScriptedClouds) -> Observation:
    return execute(action, clouds, view.name, lambda: plan_of(view.name, view.job_name))
