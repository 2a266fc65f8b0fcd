"""What commands of Slack print of evaluations, signal and comparisons of real rows."""

from __future__ import annotations

import json

import pytest

from api.tables.database import Database
from tests.api.fixtures.serving import make_key
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.api.http.slack.conftest import Person


@pytest.fixture
def story(database: Database) -> Story:
    made = Story(database)
    made.prepare()
    return made


def climbed(story: Story, name: str, before: float, after: float) -> str:
    """Return a run with a step and two evaluations."""
    run_id = story.running(spec(name=name))
    story.push(run_id, story.evaluation(run_id, 0, {"booking": before, "github": 0.0}, tasks=20))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5, "github": 0.0}))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": after, "github": 0.0}, tasks=20))
    return run_id


async def test_figures_are_those_of_the_runs_rows(
    anna: Person, story: Story, database: Database
) -> None:
    await anna.link(make_key(database, PROJECT))
    first, second = climbed(story, "first", 0.2, 0.9), climbed(story, "second", 0.2, 0.4)

    async def printed(text: str) -> str:
        reply = await anna.say(text)
        return json.dumps([reply["text"], reply.get("blocks")])

    envs = await printed(f"envs {first}")
    assert "first: environments" in envs
    assert "booking" in envs
    assert "90" in envs
    signal = await printed(f"signal {first}")
    assert "steps 1 to 1" in signal
    assert "github" in signal
    ends = await printed(f"compare {first}")
    assert "first, step 0 \\u2192 40" in ends
    assert "+70" in ends
    both = await printed(f"compare {first}@40 {second}@40")
    assert "first at step 40 \\u2192 second at step 40" in both
    assert "-50" in both
    assert "first: " in await printed(f"cost {first}")


async def test_a_run_without_rows_has_a_sentence_for_each(
    anna: Person, story: Story, database: Database
) -> None:
    await anna.link(make_key(database, PROJECT))
    run_id = story.running(spec(name="fresh"))
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}, tasks=8))
    waiting = story.submit(spec(name="waiting"))
    for text, sentence in (
        (f"envs {waiting}", "waiting has no evaluation yet."),
        (f"signal {waiting}", "waiting has no training step yet"),
        (f"compare {run_id}", "fresh has one evaluation"),
        ("compare", "Name one or two runs"),
    ):
        assert sentence in (await anna.say(text))["text"]
