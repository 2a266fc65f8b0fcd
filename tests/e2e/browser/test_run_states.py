"""The run page in a real browser says what is so: while a run starts, and where figures lack."""

from __future__ import annotations

import re
from pathlib import Path

from api.runs import store
from api.scheduling.advance import advance
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.e2e.browser.signed_in import signed_in
from tests.e2e.browser.test_run_page import NEEDS_CHROMIUM, browse, visible_text

__all__ = ["blobs", "served", "story", "story_url"]

pytestmark = NEEDS_CHROMIUM


def page_of(served: Served, run_id: str, profile: Path) -> str:
    """Return the text that a person sees on the run's page."""
    with signed_in(served, f"/runs/{run_id}") as url:
        dom = browse(url, profile)
    return visible_text(dom)


def end(story: Story, run_id: str, reason: ReasonCode, message: str = "") -> None:
    story.finish(run_id, 0, reason, message=message)
    with story.database.transaction() as session:
        advance(session, store.lock_run(session, run_id), now=story.now)


def test_a_starting_run_says_what_the_trainer_does_and_what_it_has_done(
    story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = story.submit()
    story.launch(run_id)
    story.push(run_id, story.starting(run_id, "ray"), story.starting(run_id, "ray", 3.2))
    story.push(run_id, story.starting(run_id, "weights"), story.starting(run_id, "engines"))
    text = page_of(served, run_id, tmp_path)
    assert "The trainer loads the weights, starts the engines. Done: ray 3.2 s." in text
    assert re.search(r"Duration \d+:", text), "the start counts"


def test_a_started_run_keeps_the_times_of_its_start(
    story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = story.submit()
    story.launch(run_id)
    story.push(run_id, story.started(run_id, imports=6.1, ray=3.2))
    text = page_of(served, run_id, tmp_path)
    assert "Trainer started: torch, 1.2 M parameters; start: imports 6.1 s, ray 3.2 s" in text


def test_a_run_that_failed_promises_no_first_step(
    story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = story.running()
    end(story, run_id, ReasonCode.SPEC_REJECTED, "no such model")
    text = page_of(served, run_id, tmp_path)
    assert "No training step was completed." in text
    assert "No evaluation was completed." in text
    assert "will appear here" not in text


def test_a_single_evaluation_is_no_before_and_after(
    story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    end(story, run_id, ReasonCode.SPEC_REJECTED)
    text = page_of(served, run_id, tmp_path)
    assert "booking – 20.0 %" in text, "the one figure is now, and nothing is before"
    evaluation = spec("only").model_dump(mode="json") | {"kind": "eval"}
    run_id = story.running(RunSpec.model_validate(evaluation))
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    end(story, run_id, ReasonCode.COMPLETED)
    text = page_of(served, run_id, tmp_path)
    assert "booking – 20.0 %" in text
    assert "The evaluation is complete." in text
    assert "An evaluation takes no training steps." in text
