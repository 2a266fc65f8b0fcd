"""One tick as the worker makes it, on views in memory: decide, carry out, fold, commit."""

from __future__ import annotations

from collections.abc import Callable

from tests.worker.clusters.scripted import ScriptedClouds, plan_of
from worker.clusters import fold
from worker.clusters.decide import (
    Action,
    AskDown,
    AskDownFault,
    AskJobs,
    AskLaunches,
    AskRequest,
    CancelDuplicates,
    CloudAction,
    Launch,
    Look,
    Record,
    Wait,
    decide,
)
from worker.clusters.perform import perform
from worker.clusters.view import ClusterView, Fact, Recorded

MAX_ACTIONS = 20
"""A tick that takes more than this would never end."""
CLOUD_ACTIONS = (
    *(AskLaunches, Look, AskJobs, AskRequest, Launch, CancelDuplicates, AskDown, AskDownFault),
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
    view = fold.begin(view)
    taken: list[Action] = []
    while True:
        action = decide(view, clouds.now)
        taken.append(action)
        if isinstance(action, Wait):
            commit(view)
            return taken
        assert len(taken) < MAX_ACTIONS, taken
        if isinstance(action, Record):
            view = fold.learn(view, Recorded(), clouds.now)
            commit(view)
        elif isinstance(action, CLOUD_ACTIONS):
            view = fold.learn(view, _perform(action, view, clouds), clouds.now)
        else:
            view = fold.enact(view, action, clouds.now)
        if len(taken) > cut_after:
            raise CutOff


def _perform(action: CloudAction, view: ClusterView, clouds: ScriptedClouds) -> Fact:
    return perform(action, clouds, view.name, lambda: plan_of(view.name, view.job_name))
