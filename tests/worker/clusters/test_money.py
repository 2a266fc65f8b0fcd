"""What is learnt, told and ended while runs rent machines: ledger, exclusions, Slack, strays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from api.clusters import exclusions, strays
from api.clusters.errors import NoBudget, StrayNotFound
from api.clusters.overview import of_one_run, overview
from api.notices.deliver import Delivery, deliver_due
from api.notices.slack import SlackApi
from api.runs.status import RunStatus
from api.tables import CloudExclusion, Run
from tests import factories as make
from tests.fake_slack import TOKEN, FakeSlack, run_fake_slack
from tests.worker.clusters.scene import SKY, ClusterScene
from tests.worker.clusters.scripted import Cluster
from tests.worker.scene import PROJECT
from trainer.contract.clusters.spec import CandidateSpec
from trainer.contract.launch import LaunchPlan
from trainer.contract.reasons import ReasonCode
from worker.clusters import observer
from worker.clusters.base import OfferTried, Outcome
from worker.clusters.learning import FAILED_FOR, NO_CAPACITY_FOR, PERSON_FOR, learn

LAMBDA = CandidateSpec(infra="lambda", accelerators="H100:8")
AWS = CandidateSpec(infra="aws/us-east-1", accelerators="H100:8", use_spot=True)
SLURM = CandidateSpec(infra="slurm/own", accelerators="H100:8")
SLACK = {"slack": {"channel": "#runs"}}


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        yield fake


def refused(infra: str, message: str = "none left", region: str | None = None) -> OfferTried:
    return OfferTried(infra=infra, region=region, outcome=Outcome.REFUSED, message=message)


def had(infra: str) -> OfferTried:
    return OfferTried(infra=infra, outcome=Outcome.UP)


def learnt(far: ClusterScene, *tried: OfferTried, is_ordered: bool = True) -> dict[str, timedelta]:
    with far.parts.database.transaction() as session:
        learn(session, (LAMBDA, AWS, SLURM), tried, is_ordered=is_ordered, now=far.now)
        session.flush()
        found = exclusions.in_force(session, now=far.now)
        return {f"{each.infra} {each.sku}": each.until - far.now for each in found}


def running(far: ClusterScene, **sections: object) -> tuple[str, LaunchPlan]:
    run_id = far.submit(**sections)
    far.run_for(30)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    return run_id, plan


def told(far: ClusterScene, slack: FakeSlack) -> list[str]:
    api = SlackApi(token=TOKEN, base_url=slack.base_url, timeout_s=1.0)
    # On the wall clock: it is the database that dates messages.
    delivery = Delivery(database=far.parts.database, slack=api, public_url="http://x")
    deliver_due(delivery)
    return [post["text"] for post in slack.posts]


def test_what_failed_before_the_one_that_was_had_is_asked_last_for_a_while(
    far: ClusterScene,
) -> None:
    assert learnt(far, refused("lambda"), had("aws")) == {"lambda H100:8": NO_CAPACITY_FOR}
    quota = refused("aws", "quota exceeded for p5", region="us-east-1")
    broken = OfferTried(infra="slurm", outcome=Outcome.FAILED, message="ssh: no route")
    assert learnt(far, quota, broken, is_ordered=False) == {
        "lambda H100:8": NO_CAPACITY_FOR,
        "aws/us-east-1 H100:8 (spot)": PERSON_FOR,
        "slurm/own H100:8": FAILED_FOR,
    }
    assert "lambda H100:8" not in learnt(far, had("lambda"))


def test_a_launch_that_found_nothing_makes_the_next_ask_elsewhere_first(far: ClusterScene) -> None:
    far.clouds.fails_launches = True
    far.clouds.tried = (refused("lambda"),)
    far.submit()
    far.run_for(20)
    [row] = far.rows(CloudExclusion)
    assert isinstance(row, CloudExclusion)
    assert (row.infra, row.sku, row.reason) == ("lambda", "H100:8", "none left")
    far.clouds.fails_launches, far.clouds.tried = False, ()
    far.submit("next")
    far.run_for(10)
    assert [each.infra for each in far.clouds.asked[-1]] == ["slurm/own", "lambda"]
    with far.parts.database.transaction() as session:
        assert "asked for after the others" in exclusions.told((LAMBDA,), [row])[0]
        exclusions.clear(session, row.id)
    assert far.rows(CloudExclusion) == []


def test_a_run_says_what_it_costs_now_and_will_have_cost(far: ClusterScene) -> None:
    run_id, plan = running(far)
    far.push(plan, make.step(2, 1, eta_s=7200.0))
    for _ in range(10):
        far.beat(plan)
        far.run_for(60, every_s=60.0)
    with far.parts.database.transaction() as session:
        run = session.get_one(Run, run_id)
        found = of_one_run(session, run, now=far.now)
        whole = overview(session, PROJECT, now=far.now)
    assert found is not None
    assert found.hourly_usd == pytest.approx(23.92)
    assert found.left_usd == pytest.approx(2 * 23.92)
    assert found.whole_usd == pytest.approx(found.spent.usd + 2 * 23.92)
    assert found.spent.usd == pytest.approx(23.92 / 6, rel=0.1)
    assert (whole.spent, whole.hourly_usd) == (found.spent, found.hourly_usd)
    assert [each.run.id for each in whole.live] == [run_id]


def test_budget_and_its_end_are_told_on_slack(far: ClusterScene, slack: FakeSlack) -> None:
    run_id, plan = running(far, budget={"usd": 5.0}, notify=SLACK)
    for _ in range(20):
        far.run_for(60, every_s=30.0)
        if far.beat(plan) == "stop":
            break
    far.report(plan, ReasonCode.RUNNER_STOPPED)
    posts = told(far, slack)
    assert "50% of the budget is used" in posts[1]
    assert "80% of the budget is used" in posts[2]
    assert posts[3] == "Run far is paused: The budget is used up; extend it, then resume."
    assert len(posts) == 4
    assert far.status(run_id) is RunStatus.PAUSED


def test_a_lost_cluster_is_told_on_slack_once(far: ClusterScene, slack: FakeSlack) -> None:
    run_id, _ = running(far, notify=SLACK)
    far.clouds.preempt(far.clusters(run_id)[0].name)
    far.run_for(240)
    assert told(far, slack)[1:] == [
        "Run far is recovering: The cluster was taken back or died; the run goes on from its last"
        " checkpoint."
    ]


def test_a_clusters_wall_clock_limit_is_told_on_slack(far: ClusterScene, slack: FakeSlack) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_hours": 0.5}}
    run_id, plan = running(far, notify=SLACK, backend=sky)
    while far.beat(plan) != "stop":
        far.run_for(30, every_s=15.0)
    far.report(plan, ReasonCode.RUNNER_STOPPED)
    assert far.run(run_id).end_code == ReasonCode.CLUSTER_TIME_UP
    assert [text for text in told(far, slack) if "backend.skypilot.max_hours" in text]


def test_only_what_the_spec_limits_can_be_extended(far: ClusterScene) -> None:
    with pytest.raises(NoBudget, match="sets no budget"):
        far.extend(far.submit("bare"), usd=5.0)
    limited = far.submit("hours", budget={"hours": 5.0})
    with pytest.raises(NoBudget, match=r"sets no budget\.usd"):
        far.extend(limited, usd=5.0)


def test_a_stray_is_ended_by_hand_in_a_dry_run_and_an_owned_cluster_is_not(
    far: ClusterScene,
) -> None:
    run_id, _ = running(far)
    [mine] = far.clusters(run_id)
    stray = mine.name[:-1] + "7"
    far.clouds.clusters[stray] = Cluster(stray)
    observer.sweep(far.parts, far.clouds, dry_run=True, now=far.now)
    with far.parts.database.transaction() as session:
        strays.ask_end(session, stray, actor="me", now=far.now)
        with pytest.raises(StrayNotFound, match="hillclimb strays"):
            strays.ask_end(session, mine.name, actor="me", now=far.now)
    swept = observer.sweep(far.parts, far.clouds, dry_run=True, now=far.now)
    assert swept is not None
    assert swept.ended == (stray,)
    far.clouds.pass_time(30)
    assert set(far.clouds.clusters) == {mine.name}
