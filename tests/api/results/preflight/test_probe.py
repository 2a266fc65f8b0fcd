"""What a probe found, over HTTP: the event's facts and figures from the stored outcomes."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from api.tables import OutcomeRecord
from hillclimb.spec.run import RunSpec
from hillclimb.stats.probe_report import PROBE_RULE
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec

FOUND = {"booking": 4, "github": -1, "outlook": 0}


def a_probe() -> RunSpec:
    return spec().model_copy(update={"kind": "probe"})


def test_a_probe_is_read_with_its_verdicts_and_its_health(story: Story, served: Served) -> None:
    run_id = story.running(a_probe())
    with served.client() as client:
        early = client.get(f"/v1/runs/{run_id}/probe")
        story.push(run_id, story.probed(run_id, FOUND))
        found = client.get(f"/v1/runs/{run_id}/probe").json()
        stream = client.get(f"/v1/runs/{run_id}/events", params={"limit": 200}).json()["data"]
        rollouts = client.get(
            f"/v1/runs/{run_id}/trajectories", params={"decoding": "probe", "env": "booking"}
        ).json()
    assert (early.status_code, early.json()["code"]) == (404, "no_such_probe")
    verdicts = {key: env["verdict"] for key, env in found["environments"].items()}
    assert verdicts == {"booking": "informative", "github": "unhealthy", "outlook": "hopeless"}
    booking = found["environments"]["booking"]
    assert (booking["pass_rate"]["value"], booking["signal"]["value"]) == (0.5, 1.0)
    assert booking["shares"][0]["value"] == pytest.approx(1 - 2 * (6 / 28))
    assert booking["health"]["call"]["p95_s"] == 0.012
    assert found["environments"]["github"]["health"]["infra_errors"] == {"connect_timeout": 8}
    assert found["environments"]["github"]["begun"] == {"num_begun": 320, "num_troubled": 320}
    assert (found["complete"], found["group_size"], found["rule"]) == (True, 8, PROBE_RULE)
    # Of 4 passes in 8, 57 % of pairs are mixed: half of the groups carry signal from there on.
    assert found["advised_group_size"] == 2
    (event,) = [each["data"] for each in stream if each["type"] == "probe.completed"]
    assert event["environments"]["booking"] == {
        key: value for key, value in booking.items() if key != "health"
    }
    assert "outcomes" not in event
    assert event["envs"]["booking"]["n"] == 320
    assert len(rollouts["data"]) == 50


def test_the_figures_come_from_the_outcomes_and_the_newest_attempt_counts(
    story: Story, served: Served
) -> None:
    run_id = story.running(a_probe())
    story.push(run_id, story.probed(run_id, {"booking": 0}, complete=False))
    story.push(run_id, story.probed(run_id, {"booking": 8}))
    with served.client() as client:
        saturated = client.get(f"/v1/runs/{run_id}/probe").json()
        with story.database.transaction() as session:
            session.execute(update(OutcomeRecord).values(score=0.0))
        hopeless = client.get(f"/v1/runs/{run_id}/probe").json()
    assert saturated["complete"]
    assert saturated["environments"]["booking"]["verdict"] == "saturated"
    assert hopeless["environments"]["booking"]["verdict"] == "hopeless"


def test_a_training_run_has_no_probe_and_says_how_to_get_one(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/probe")
    assert answer.status_code == 404
    assert "it is of kind train, submit one of kind probe" in answer.json()["detail"]
