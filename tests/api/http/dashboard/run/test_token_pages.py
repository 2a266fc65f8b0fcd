"""The page of a rollout's tokens, its parts, and how tokens are written and marked."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from api.http.dashboard.run import tokens as token_pages
from api.http.dashboard.run.measures import SCALES, Marking
from api.http.dashboard.run.tokens import visible
from hillclimb.blobs.disk import DiskStore
from hillclimb.stats.trajectories.tokens import TokenFacts
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.stored import sign_in
from tests.hillclimb.stats.trajectories.stored_tokens import (
    learned,
    not_learned,
    store_trajectories,
    store_values,
    store_vocabulary,
    trajectory,
)

FIRST = "1/1/train/train/booking/eval/t/0/0"
SECOND = "1/1/train/train/booking/eval/t/1/0"


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}, tasks=2))
    store_trajectories(blobs, run_id, [trajectory(f"booking-{task}") for task in range(2)])
    store_values(blobs, run_id, [learned(FIRST), not_learned(SECOND)])
    store_vocabulary(blobs, run_id)
    return run_id


def text_of(page: httpx.Response) -> str:
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page.text).split()))


def marks(page: httpx.Response) -> list[tuple[str | None, str]]:
    """Level and text of each token that the page marks."""
    group = page.text.partition('<div class="tokens"')[2].partition("</div>")[0]
    found = re.findall(r'<span class="token"([^>]*)>([^<]*)</span>', group)
    levels = [re.search(r'data-level="(\d)"', attributes) for attributes, _ in found]
    texts = [html.unescape(text) for _, text in found]
    return [(level[1] if level else None, text) for level, text in zip(levels, texts, strict=True)]


def test_the_page_lists_the_largest_gaps_with_position_and_text(
    browser: httpx.Client, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}")
    assert page.status_code == 200
    text = text_of(page)
    assert "The 4 largest gaps of learner and engine" in text
    rows = re.findall(
        r"<tr><td><a href=\"([^\"]+)\"><code>([^<]*)</code></a></td>(.*?)</tr>", page.text
    )
    assert [name for _, name, _ in rows] == ["ca", "⟨c3⟩", "ok", "&lt;|im_end|&gt;"]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", rows[0][2])
    assert cells == ["2", "1", "-0.5", "0", "0.5", "1.5", "3"]
    assert html.unescape(rows[2][0]).endswith("?turn=2&start=6&measure=gap#t6")
    assert "advantage +0.5" in text
    assert "which began with weights of version 4, after 1 update of the step" in text


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("gap", [("4", "ca"), ("3", "⟨c3⟩"), (None, "⟨a9⟩"), (None, "↵\n")]),
        ("entropy", [("4", "ca"), ("0", "⟨c3⟩"), (None, "⟨a9⟩"), (None, "↵\n")]),
        ("probability", [("2", "ca"), ("3", "⟨c3⟩"), (None, "⟨a9⟩"), (None, "↵\n")]),
        ("mask", [("3", "ca"), ("3", "⟨c3⟩"), (None, "⟨a9⟩"), (None, "↵\n")]),
        ("version", [("1", "ca"), ("1", "⟨c3⟩"), (None, "⟨a9⟩"), (None, "↵\n")]),
    ],
)
def test_a_measure_marks_each_token_with_its_level(
    browser: httpx.Client, run_id: str, measure: str, expected: list[tuple[str | None, str]]
) -> None:
    """A gap of 0.5, an entropy of 1.5; probabilities of 61 and 37 %."""
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}?measure={measure}")
    assert marks(page) == expected
    assert 'aria-current="true">' in page.text


def test_what_a_colour_says_is_also_written(browser: httpx.Client, run_id: str) -> None:
    gaps = browser.get(f"/runs/{run_id}/tokens/{FIRST}").text
    assert '<span class="sr">from 0.5: </span><span class="token" id="t2" data-level="4"' in gaps
    title = "2: ca · id 1 · engine -0.5 · learner 0 · gap 0.5 · entropy 1.5 · version 3"
    assert f'title="{title}"' in gaps
    mask = browser.get(f"/runs/{run_id}/tokens/{FIRST}?measure=mask").text
    assert re.findall(r'<span class="sr">(.*?) </span>', mask) == ["drawn:", "not drawn:"]
    version = browser.get(f"/runs/{run_id}/tokens/{FIRST}?measure=version&turn=2").text
    assert re.findall(r'<span class="sr">(.*?) </span>', version) == ["version 4:"]
    assert "version 3" in version  # the legend is that of the rollout


def test_the_same_stands_in_a_table(browser: httpx.Client, run_id: str) -> None:
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}")
    table = page.text.partition("The same as a table")[2]
    cells = [
        re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)
    ]
    assert cells[1] == [
        "2", "<code>ca</code>", "1", "drawn", "-0.5", "0", "0.5", "1.5", "3",
    ]  # fmt: skip
    assert cells[3][:4] == ["4", "<code>⟨a9⟩</code>", "3", "not drawn"]
    assert cells[3][4:] == ["–"] * 5


def test_the_prompt_and_each_turn_have_an_address(browser: httpx.Client, run_id: str) -> None:
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}?turn=0")
    assert [text for _, text in marks(page)] == ["<|im_start|>", " Hi"]
    assert "The prompt" in text_of(page)
    assert [text for _, text in marks(browser.get(f"/runs/{run_id}/tokens/{FIRST}?turn=2"))] == [
        "ok",
        "<|im_end|>",
    ]
    nothing = browser.get(f"/runs/{run_id}/tokens/{FIRST}?turn=7")
    assert (nothing.status_code, "The rollout has no such turn." in nothing.text) == (200, True)


def test_a_rollout_without_values_says_so_in_one_sentence(
    browser: httpx.Client, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}/tokens/{SECOND}")
    text = text_of(page)
    assert "largest gaps" not in text
    # Once for the rollout, once where its gaps would be.
    assert text.count("The learner took no gradient from this rollout") == 2
    assert [level for level, _ in marks(page)] == [None] * 4
    mask = browser.get(f"/runs/{run_id}/tokens/{SECOND}?measure=mask")
    assert [level for level, _ in marks(mask)] == ["3", "3", None, None]
    assert text_of(mask).count("The learner took no gradient from this rollout") == 1


def test_tokens_without_texts_are_ids(
    story: Story, browser: httpx.Client, blobs: DiskStore
) -> None:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}, tasks=1))
    store_trajectories(blobs, run_id, [trajectory()])
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}")
    assert [text for _, text in marks(page)] == ["⟨1⟩", "⟨2⟩", "⟨3⟩", "⟨4⟩"]
    assert "The texts of its tokens were not stored" in page.text


@pytest.mark.parametrize(("limit", "num_parts"), [(4, 1), (3, 2), (1, 4)])
def test_a_long_turn_comes_in_parts(
    browser: httpx.Client,
    run_id: str,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    num_parts: int,
) -> None:
    monkeypatch.setattr(token_pages, "TOKENS_PER_PART", limit)
    address: str | None = f"/runs/{run_id}/tokens/{FIRST}?turn=1"
    texts, parts = [], 0
    while address:
        page = browser.get(address)
        parts, own = parts + 1, marks(page)
        assert len(own) <= limit
        texts += [text for _, text in own]
        following = re.search(r'<a href="([^"]+)" data-loads rel="next">', page.text)
        address = html.unescape(following[1]) if following else None
    assert (texts, parts) == (["ca", "⟨c3⟩", "⟨a9⟩", "↵\n"], num_parts)


def test_the_link_of_a_gap_leads_to_the_part_that_has_it(
    browser: httpx.Client, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_pages, "TOKENS_PER_PART", 1)
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}")
    links = re.findall(r'<tr><td><a href="([^"]+)"', page.text)
    for link, position in zip(links, (2, 3, 6, 7), strict=True):
        assert f'id="t{position}"' in browser.get(html.unescape(link)).text


def test_the_part_of_a_turn_is_loaded_by_the_page_of_the_rollout(
    browser: httpx.Client, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}/rollouts/{FIRST}").text
    addresses = re.findall(r'<details class="by-token" data-tokens="([^"]+)"', page)
    assert len(addresses) == 3
    part = browser.get(f"/dashboard{addresses[1]}")
    assert part.status_code == 200
    assert "<html" not in part.text
    assert ' id="' not in part.text  # two rollouts side by side would have the same
    assert [text for _, text in marks(part)] == ["ca", "⟨c3⟩", "⟨a9⟩", "↵\n"]
    assert browser.get(addresses[1]).status_code == 200


def test_what_a_token_says_is_text(browser: httpx.Client, run_id: str, blobs: DiskStore) -> None:
    evil = "<script>alert(1)</script>"
    store_vocabulary(blobs, run_id, [" Hi", evil, '" onload="x', [0xA9], "\u202e\x1b[2J"])
    page = browser.get(f"/runs/{run_id}/tokens/{FIRST}").text
    assert evil not in page
    assert 'onload="x' not in page
    assert "&lt;script&gt;" in page
    assert "⟨U+202E⟩⟨U+001B⟩[2J" in page


def test_what_is_not_there_or_not_mine_is_a_page_that_says_so(
    served: Served, browser: httpx.Client, run_id: str
) -> None:
    for path, title in (
        (f"/runs/{run_id}/tokens/nothing", "No such rollout"),
        (f"/runs/run_no/tokens/{FIRST}", "No such run"),
    ):
        page = browser.get(path)
        assert (page.status_code, title in page.text) == (404, True)
    assert browser.get(f"/dashboard/runs/{run_id}/tokens/nothing").status_code == 404
    assert browser.get(f"/runs/{run_id}/tokens/{FIRST}?measure=colour").status_code == 422
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        for prefix in ("", "/dashboard"):
            assert stranger.get(f"{prefix}/runs/{run_id}/tokens/{FIRST}").status_code == 404
    with served.browser() as nobody:
        away = nobody.get(f"/runs/{run_id}/tokens/{FIRST}?turn=1")
        assert away.headers["location"] == f"/login?next=/runs/{run_id}/tokens/{FIRST}%3Fturn%3D1"
        assert nobody.get(f"/dashboard/runs/{run_id}/tokens/{FIRST}").status_code == 401


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a b", "a b"),
        ("\n\t", "↵\n⇥\t"),
        ("\u200b", "⟨U+200B⟩"),
        (b"\xe2\x82", "⟨e2 82⟩"),
        ("", "⟨⟩"),
        (None, "⟨17⟩"),
        ("€", "€"),
    ],
)
def test_nothing_in_a_token_is_invisible(text: str | bytes | None, written: str) -> None:
    assert visible(text, 17) == written


def token(**changes: object) -> TokenFacts:
    facts = {
        "position": 0,
        "token_id": 1,
        "text": "a",
        "turn": 1,
        "is_drawn": True,
        "engine_logprob": -1.0,
        "gap": 0.0,
        "entropy": 0.0,
        "weight_version": 0,
    }
    return TokenFacts(**facts | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gap", "level"),
    [(0.0, 0), (0.0009, 0), (0.001, 1), (-0.01, 2), (0.1, 3), (-0.5, 4), (0.99, 4), (1.0, 5)],
)
def test_levels_begin_at_their_bounds_whatever_the_sign(gap: float, level: int) -> None:
    assert Marking(measure="gap").level(token(gap=gap)) == level


def test_each_level_of_a_scale_has_a_meaning() -> None:
    for scale in SCALES.values():
        assert len(scale.levels) == len(scale.bounds) + 1
        assert list(scale.bounds) == sorted(scale.bounds)


def test_versions_take_turns_with_the_levels() -> None:
    marking = Marking(measure="version", versions=range(10, 17))
    levels = [marking.level(token(weight_version=version)) for version in range(10, 17)]
    assert levels == [1, 2, 3, 4, 5, 1, 2]
    assert marking.level(token(weight_version=None, is_drawn=False)) is None
