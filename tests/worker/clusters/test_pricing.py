"""Prices that somebody wants to know, from the row to the clouds and back."""

from __future__ import annotations

from datetime import timedelta

from api.clusters import quotes
from tests.worker.clusters.scene import SKY, ClusterScene
from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.spec import SkyPilotSpec
from worker.clusters import pricing

WANTED = SkyPilotSpec.model_validate(SKY["skypilot"])


def ask(far: ClusterScene) -> quotes.Quoted:
    with far.parts.database.transaction() as session:
        quotes.ask(session, WANTED, now=far.now)
        return quotes.known(session, WANTED, now=far.now)


def test_one_question_answers_all_that_is_wanted_and_is_not_asked_again(far: ClusterScene) -> None:
    far.clouds.catalog = {"lambda": 23.92}
    assert ask(far).is_awaited
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 2
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 0
    known = ask(far)
    assert known.offers == (
        Offer(candidate=0, infra="lambda/us-west-1", sku="gpu_8x_h100", hourly_usd=23.92),
    )
    assert (known.is_awaited, known.as_of) == (False, far.now)
    far.clouds.pass_time(quotes.FRESH.total_seconds() + 1)
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 0
    assert ask(far).is_awaited
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 2


def test_clouds_that_are_away_are_asked_again_after_a_pause(far: ClusterScene) -> None:
    far.clouds.is_away = True
    ask(far)
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 0
    assert "refused" in (ask(far).problem or "")
    far.clouds.is_away = False
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 0
    far.clouds.pass_time((quotes.PAUSE + timedelta(seconds=1)).total_seconds())
    assert pricing.sweep(far.parts, far.clouds, clock=far.clock) == 2
    assert ask(far).problem is None
