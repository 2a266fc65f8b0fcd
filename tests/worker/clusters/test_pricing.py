"""Prices that somebody wants to know, from the row to the clouds and back."""

from __future__ import annotations

from datetime import timedelta

from api.clusters import quotes
from api.runs.deadlines import QUOTE_FRESHNESS, QUOTE_RETRY
from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import SkyPilotSpec
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from worker.clusters import pricing

WANTED = SkyPilotSpec.model_validate(SKY["skypilot"])


def ask(cluster_sim: ClusterSimulation) -> quotes.Quotes:
    with cluster_sim.context.database.transaction() as session:
        quotes.request(session, WANTED, now=cluster_sim.now)
        return quotes.quotes_of(session, WANTED, now=cluster_sim.now)


def test_one_question_answers_all_that_is_wanted_and_is_not_asked_again(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.clouds.catalog = {"lambda": 23.92}
    assert ask(cluster_sim).is_awaited
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 2
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 0
    known = ask(cluster_sim)
    assert known.offers == (
        Offer(candidate=0, infra="lambda/us-west-1", sku="gpu_8x_h100", hourly_usd=23.92),
    )
    assert (known.is_awaited, known.as_of) == (False, cluster_sim.now)
    cluster_sim.clouds.pass_time(QUOTE_FRESHNESS.total_seconds() + 1)
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 0
    assert ask(cluster_sim).is_awaited
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 2


def test_clouds_that_are_away_are_asked_again_after_a_pause(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.is_away = True
    ask(cluster_sim)
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 0
    assert "refused" in (ask(cluster_sim).problem or "")
    cluster_sim.clouds.is_away = False
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 0
    cluster_sim.clouds.pass_time((QUOTE_RETRY + timedelta(seconds=1)).total_seconds())
    assert pricing.sweep(cluster_sim.context, cluster_sim.clouds, clock=cluster_sim.clock) == 2
    assert ask(cluster_sim).problem is None
