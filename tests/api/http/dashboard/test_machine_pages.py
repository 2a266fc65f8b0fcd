"""The pages of machines: a run's part, the project's clusters, the log."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import update

from api.clusters import exclusions
from api.runs.journal import utc_now
from api.tables import Cluster
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import log_segment, run_key
from tests.api.clusters.cluster_story import LAMBDA, rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.test_pages import sign_in

LINES = (
    b"2026-11-21 10:00:00,100 INFO trainer.node: joined the gang\n"
    b"2026-11-21 10:00:01,100 WARNING trainer.rollouts: booking took 31 s\n"
    b"2026-11-21 10:00:02,100 ERROR trainer.engines: <b>out of memory</b>\n"
)


def test_the_run_page_shows_machines_money_and_what_was_tried(story: Story, served: Served) -> None:
    run_id = rented(story, hours=2.0, eta_s=3600.0, budget={"usd": 60.0})
    with served.browser() as browser:
        sign_in(served, browser)
        page = browser.get(f"/runs/{run_id}").text
        part = browser.get(f"/dashboard/runs/{run_id}/machines").text
    for shown in (page, part):
        assert 'id="machines"' in shown
        assert "nebius · eu-north1" in shown
        assert "no H100 left in us-west-1" in shown
        assert "of $60.00" in shown
        assert ">80 %<" in shown
        assert "80%</text>" in shown
    assert "Its machines are being rented and set up." in page
    assert "style=" not in page


def test_a_run_on_a_runner_has_no_machines(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.browser() as browser:
        sign_in(served, browser)
        assert 'id="machines"' not in browser.get(f"/runs/{run_id}").text
        assert browser.get(f"/dashboard/runs/{run_id}/machines").status_code == 204


def test_the_page_of_clusters_shows_the_projects_own(story: Story, served: Served) -> None:
    rented(story, "mine", hours=2.0)
    now = utc_now()
    with story.database.transaction() as session:
        session.execute(update(Cluster).values(status_reason="it is still there: denied"))
        until = now + timedelta(hours=1)
        exclusions.exclude(session, LAMBDA, "no <H100> left", until=until, now=now)
    with served.browser() as browser, served.browser() as stranger:
        assert browser.get("/clusters").headers["location"] == "/login?next=/clusters"
        sign_in(served, browser)
        page = browser.get("/clusters").text
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        other = stranger.get("/clusters").text
    assert "mine" in page
    assert "it is still there: denied" in page
    assert "$47.8" in page
    assert "no &lt;H100&gt; left" in page
    assert "mine" not in other
    assert "No machines are rented now." in other


def test_the_log_is_found_by_level_component_environment_and_text(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = rented(story)
    blobs.put(run_key(run_id, log_segment(1, 1)), LINES)
    with served.browser() as browser:
        assert browser.get(f"/runs/{run_id}/log").status_code == 303
        sign_in(served, browser)

        def lines(query: str) -> str:
            return browser.get(f"/runs/{run_id}/log?{query}").text

        assert "joined the gang" in lines("")
        assert "&lt;b&gt;out of memory" in lines("level=ERROR&component=&environment=&text=")
        assert "joined the gang" not in lines("level=WARNING&component=&environment=&text=")
        assert "joined the gang" in lines("component=node")
        assert "booking took" in lines("environment=booking")
        assert "No matching lines" in lines("text=nowhere")
        assert browser.get("/runs/run_none/log").status_code == 404
