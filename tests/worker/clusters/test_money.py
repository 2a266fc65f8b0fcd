"""Side effects of runs on clusters: ledger of offers, exclusions, Slack messages, orphans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from api.clusters import exclusions, orphans
from api.clusters.errors import NoBudget, OrphanNotFound
from api.clusters.overview import forecast_of_run, overview
from api.notices.deliver import Delivery, deliver_due
from api.notices.slack.web_api import SlackApi
from api.runs.status import RunStatus
from api.tables import CloudExclusion, Run
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import LaunchPlan
from hillclimb.spec.backend.skypilot import CandidateSpec
from tests.fixtures import factories as make
from tests.fixtures.fake_slack import TOKEN, FakeSlack, run_fake_slack
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from tests.worker.clusters.scripted import Cluster
from tests.worker.run_simulation import PROJECT
from worker.clusters import observer
from worker.clusters.capacity_hints import update_exclusions
from worker.deadlines import FAILURE_EXCLUSION, NO_CAPACITY_EXCLUSION, OPERATOR_EXCLUSION
from worker.skypilot.port import OfferOutcome, TriedOffer

LAMBDA = CandidateSpec(infra="lambda", accelerators="H100:8")
AWS = CandidateSpec(infra="aws/us-east-1", accelerators="H100:8", use_spot=True)
SLURM = CandidateSpec(infra="slurm/own", accelerators="H100:8")
SLACK = {"slack": {"channel": "#runs"}}


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        yield fake


def refused(infra: str, message: str = "none left", region: str | None = None) -> TriedOffer:
    return TriedOffer(infra=infra, region=region, outcome=OfferOutcome.REFUSED, message=message)


def had(infra: str) -> TriedOffer:
    return TriedOffer(infra=infra, outcome=OfferOutcome.UP)


def exclusions_after(
    cluster_sim: ClusterSimulation, *tried: TriedOffer, is_ordered: bool = True
) -> dict[str, timedelta]:
    with cluster_sim.context.database.transaction() as session:
        update_exclusions(
            session, (LAMBDA, AWS, SLURM), tried, is_ordered=is_ordered, now=cluster_sim.now
        )
        session.flush()
        found = exclusions.in_force(session, now=cluster_sim.now)
        return {f"{each.infra} {each.sku}": each.until - cluster_sim.now for each in found}


def running(cluster_sim: ClusterSimulation, **sections: object) -> tuple[str, LaunchPlan]:
    run_id = cluster_sim.submit(**sections)
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    return run_id, plan


def told(cluster_sim: ClusterSimulation, slack: FakeSlack) -> list[str]:
    api = SlackApi(token=TOKEN, base_url=slack.base_url, timeout_s=1.0)
    # On the wall clock: it is the database that dates messages.
    delivery = Delivery(database=cluster_sim.context.database, slack=api, public_url="http://x")
    deliver_due(delivery)
    live, *replies = [post["text"] for post in slack.posts]
    assert live.startswith("far: ")
    return [text for text in replies if text != "Run far is provisioning"]


def test_what_failed_before_the_one_that_was_had_is_asked_last_for_a_while(
    cluster_sim: ClusterSimulation,
) -> None:
    assert exclusions_after(cluster_sim, refused("lambda"), had("aws")) == {
        "lambda H100:8": NO_CAPACITY_EXCLUSION
    }
    quota = refused("aws", "quota exceeded for p5", region="us-east-1")
    broken = TriedOffer(infra="slurm", outcome=OfferOutcome.FAILED, message="ssh: no route")
    assert exclusions_after(cluster_sim, quota, broken, is_ordered=False) == {
        "lambda H100:8": NO_CAPACITY_EXCLUSION,
        "aws/us-east-1 H100:8 (spot)": OPERATOR_EXCLUSION,
        "slurm/own H100:8": FAILURE_EXCLUSION,
    }
    assert "lambda H100:8" not in exclusions_after(cluster_sim, had("lambda"))


def test_a_launch_that_found_nothing_makes_the_next_ask_elsewhere_first(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.clouds.fails_launches = True
    cluster_sim.clouds.tried = (refused("lambda"),)
    cluster_sim.submit()
    cluster_sim.run_for(20)
    [row] = cluster_sim.rows(CloudExclusion)
    assert isinstance(row, CloudExclusion)
    assert (row.infra, row.sku, row.reason) == ("lambda", "H100:8", "none left")
    cluster_sim.clouds.fails_launches, cluster_sim.clouds.tried = False, ()
    cluster_sim.submit("next")
    cluster_sim.run_for(10)
    assert [each.infra for each in cluster_sim.clouds.asked[-1]] == ["slurm/own", "lambda"]
    with cluster_sim.context.database.transaction() as session:
        assert "tried after the others" in exclusions.describe((LAMBDA,), [row])[0]
        exclusions.remove(session, row.id)
    assert cluster_sim.rows(CloudExclusion) == []


def test_a_run_says_what_it_costs_now_and_will_have_cost(cluster_sim: ClusterSimulation) -> None:
    run_id, plan = running(cluster_sim)
    cluster_sim.push(plan, make.step(2, 1, eta_s=7200.0))
    for _ in range(10):
        cluster_sim.beat(plan)
        cluster_sim.run_for(60, every_s=60.0)
    with cluster_sim.context.database.transaction() as session:
        run = session.get_one(Run, run_id)
        found = forecast_of_run(session, run, now=cluster_sim.now)
        whole = overview(session, PROJECT, now=cluster_sim.now)
    assert found is not None
    assert found.hourly_usd == pytest.approx(23.92)
    assert found.left_usd == pytest.approx(2 * 23.92)
    assert found.whole_usd == pytest.approx(found.spent.usd + 2 * 23.92)
    assert found.spent.usd == pytest.approx(23.92 / 6, rel=0.1)
    assert (whole.spent, whole.hourly_usd) == (found.spent, found.hourly_usd)
    assert [each.run.id for each in whole.live] == [run_id]


def test_budget_and_its_end_are_told_on_slack(
    cluster_sim: ClusterSimulation, slack: FakeSlack
) -> None:
    run_id, plan = running(cluster_sim, budget={"usd": 5.0}, notify=SLACK)
    for _ in range(20):
        cluster_sim.run_for(60, every_s=30.0)
        if cluster_sim.beat(plan) == "stop":
            break
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    posts = told(cluster_sim, slack)
    assert "50% of the budget is used" in posts[1]
    assert "80% of the budget is used" in posts[2]
    assert posts[3] == "Run far is paused: The budget is used up; extend it, then resume."
    assert len(posts) == 4
    assert cluster_sim.status(run_id) is RunStatus.PAUSED


def test_a_lost_cluster_is_told_on_slack_once(
    cluster_sim: ClusterSimulation, slack: FakeSlack
) -> None:
    run_id, _ = running(cluster_sim, notify=SLACK)
    cluster_sim.clouds.preempt(cluster_sim.clusters(run_id)[0].name)
    cluster_sim.run_for(240)
    assert told(cluster_sim, slack)[1:] == [
        "Run far is recovering: The cluster was preempted or failed; the run resumes from its last"
        " checkpoint."
    ]


@pytest.mark.invariant("a cluster's wall-clock limit reaches Slack")
def test_a_clusters_wall_clock_limit_is_told_on_slack(
    cluster_sim: ClusterSimulation, slack: FakeSlack
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_hours": 0.5}}
    run_id, plan = running(cluster_sim, notify=SLACK, backend=sky)
    while cluster_sim.beat(plan) != "stop":
        cluster_sim.run_for(60, every_s=30.0)
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    assert cluster_sim.run(run_id).end_code == ReasonCode.CLUSTER_TIME_UP
    assert [text for text in told(cluster_sim, slack) if "backend.skypilot.max_hours" in text]


def test_only_what_the_spec_limits_can_be_extended(cluster_sim: ClusterSimulation) -> None:
    with pytest.raises(NoBudget, match="sets no budget"):
        cluster_sim.extend(cluster_sim.submit("bare"), usd=5.0)
    limited = cluster_sim.submit("hours", budget={"hours": 5.0})
    with pytest.raises(NoBudget, match=r"sets no budget\.usd"):
        cluster_sim.extend(limited, usd=5.0)


def test_a_stray_is_ended_by_hand_in_a_dry_run_and_an_owned_cluster_is_not(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim)
    [mine] = cluster_sim.clusters(run_id)
    orphan = mine.name[:-1] + "7"
    cluster_sim.clouds.clusters[orphan] = Cluster(orphan)
    observer.sweep(cluster_sim.context, cluster_sim.clouds, dry_run=True, now=cluster_sim.now)
    with cluster_sim.context.database.transaction() as session:
        orphans.request_termination(session, orphan, actor="me", now=cluster_sim.now)
        with pytest.raises(OrphanNotFound, match="hillclimb orphans"):
            orphans.request_termination(session, mine.name, actor="me", now=cluster_sim.now)
    swept = observer.sweep(
        cluster_sim.context, cluster_sim.clouds, dry_run=True, now=cluster_sim.now
    )
    assert swept is not None
    assert swept.terminated == (orphan,)
    cluster_sim.clouds.pass_time(30)
    assert set(cluster_sim.clouds.clusters) == {mine.name}
