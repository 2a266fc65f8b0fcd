"""Pages of rollouts: groups with filters, one rollout turn by turn, two side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from hillclimb.blobs.disk import DiskStore
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.stored import TURNS, sign_in, store_trajectories

FIRST = "1/0/eval/sampled/booking/eval/t/0/0"


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    """A run with one evaluation of 4 tasks: half of booking's pass, all of github's."""
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5, "github": 1.0}, tasks=4))
    store_trajectories(blobs, run_id, [f"booking-{task}" for task in range(4)])
    return run_id


def text_of(page: httpx.Response) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())


def test_the_list_shows_each_group_with_a_mark_per_rollout(
    browser: httpx.Client, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}/rollouts")
    assert page.status_code == 200
    assert page.text.count('class="mark"') == 8
    assert f'href="/runs/{run_id}/rollouts/{FIRST}"' in page.text
    assert "rollout 0 failed" in page.text


@pytest.mark.parametrize(
    ("query", "num"),
    [
        ("outcome=failed", 2),
        ("outcome=passed", 6),
        ("outcome=infra_error", 0),
        ("env=github", 4),
        ("env=booking&outcome=failed", 2),
        ("step=0&split=eval&decoding=sampled", 8),
        ("step=1", 0),
        ("task_key=booking-1", 1),
        ("pattern=max_turns", 0),
    ],
)
def test_a_filter_chooses_rollouts(
    browser: httpx.Client, run_id: str, query: str, num: int
) -> None:
    page = browser.get(f"/runs/{run_id}/rollouts?{query}")
    assert page.text.count('class="mark"') == num
    assert ("No rollout matches." in page.text) == (num == 0)


def test_the_list_is_paged(story: Story, browser: httpx.Client, run_id: str) -> None:
    story.push(run_id, story.evaluation(run_id, 5, {"booking": 0.5}, tasks=60))
    first = browser.get(f"/runs/{run_id}/rollouts?env=booking")
    assert first.text.count('class="mark"') == 50
    following = re.search(r'rel="next" href="([^"]+)"', first.text)
    assert following is not None
    address = following[1].replace("&amp;", "&")
    second = browser.get(f"/runs/{run_id}/rollouts{address}")
    assert second.text.count('class="mark"') == 14
    assert 'rel="next"' not in second.text


def test_a_rollout_is_shown_turn_by_turn(browser: httpx.Client, run_id: str) -> None:
    page = browser.get(f"/runs/{run_id}/rollouts/1/0/eval/sampled/booking/eval/t/3/0")
    text = text_of(page)
    assert "Move Ada's booking to 4 May.".replace("'", "&#39;") in text
    assert "Model turn 1" in text
    assert "Tool call find_bookings" in text
    assert "Environment answers with an error No booking b-71." in text
    assert "Says it is done." in text
    assert "no_done" not in text
    assert "The policy never said it was done before the turn limit." in text
    assert page.text.count('<details class="call" open>') == 1
    assert page.text.count('<details class="thought">') == 1


def test_two_rollouts_stand_side_by_side_also_of_two_runs(
    story: Story, browser: httpx.Client, run_id: str
) -> None:
    other = story.running()
    story.push(other, story.evaluation(other, 0, {"booking": 1.0}, tasks=4))
    query = {"beside": FIRST, "beside_run": other}
    page = browser.get(f"/runs/{run_id}/rollouts/{FIRST}", params=query)
    assert page.text.count('<article class="rollout"') == 2
    assert "The conversation is not in the store" in page.text


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (TURNS, "The policy said and called the same in every turn."),
        (TURNS[:2], "They differ from turn 3 on: turns 1 to 2 are the same."),
        ((TURNS[0], TURNS[2]), "They differ from turn 2 on: turn 1 is the same."),
        (TURNS[1:], "They differ from the first turn on."),
    ],
)
def test_two_rollouts_of_a_task_say_where_they_differ(
    story: Story,
    browser: httpx.Client,
    run_id: str,
    blobs: DiskStore,
    second: Sequence[dict[str, Any]],
    sentence: str,
) -> None:
    other = story.running()
    story.push(other, story.evaluation(other, 0, {"booking": 1.0}, tasks=4))
    store_trajectories(blobs, other, ["booking-0"], second)
    query = {"beside": FIRST, "beside_run": other}
    page = browser.get(f"/runs/{run_id}/rollouts/{FIRST}", params=query)
    assert sentence in text_of(page)


def test_rollouts_of_two_tasks_are_not_compared(browser: httpx.Client, run_id: str) -> None:
    query = {"beside": FIRST.replace("t/0", "t/1")}
    page = browser.get(f"/runs/{run_id}/rollouts/{FIRST}", params=query)
    assert "These are rollouts of two tasks." in page.text
    assert "They differ" not in page.text
    alone = browser.get(f"/runs/{run_id}/rollouts/{FIRST}")
    assert "These are rollouts of two tasks." not in alone.text


def test_what_an_environment_answers_is_text(
    browser: httpx.Client, run_id: str, blobs: DiskStore
) -> None:
    evil = "<script>alert(1)</script>"
    store_trajectories(blobs, run_id, ["booking-0"], prompt=evil)
    page = browser.get(f"/runs/{run_id}/rollouts/{FIRST}").text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page


def test_what_is_not_there_or_not_mine_is_a_page_that_says_so(
    story: Story, served: Served, browser: httpx.Client, run_id: str
) -> None:
    for path, title in (
        (f"/runs/{run_id}/rollouts/nothing", "No such rollout"),
        ("/runs/run_no/rollouts", "No such run"),
        (f"/runs/{run_id}/rollouts/{FIRST}?beside={FIRST}&beside_run=run_no", "No such run"),
    ):
        page = browser.get(path)
        assert (page.status_code, title in page.text) == (404, True)
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        assert stranger.get(f"/runs/{run_id}/rollouts").status_code == 404
        assert stranger.get(f"/runs/{run_id}/rollouts/{FIRST}").status_code == 404
    with served.browser() as nobody:
        away = nobody.get(f"/runs/{run_id}/rollouts?env=booking")
        assert away.headers["location"] == f"/login?next=/runs/{run_id}/rollouts%3Fenv%3Dbooking"


def test_a_run_without_rollouts_says_why(story: Story, browser: httpx.Client) -> None:
    run_id = story.running()
    assert "has stored no rollouts yet" in browser.get(f"/runs/{run_id}/rollouts").text
