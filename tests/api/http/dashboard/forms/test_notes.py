"""Tags, links and note on the run page; the filter by tag; clusters without a reload."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.forms.conftest import demote, hidden, text_of


@pytest.fixture
def run_id(story: Story) -> str:
    return story.submit()


def annotate(browser: httpx.Client, run_id: str, **fields: str) -> httpx.Response:
    page = browser.get(f"/runs/{run_id}").text
    own = hidden(page, "token", "old_tags")
    for name in ("old_links", "old_note"):
        own[name] = html.unescape(
            re.search(rf'<textarea name="{name}"[^>]*>\n([^<]*)</textarea>', page)[1]  # type: ignore[index]
        )
    return browser.post(f"/runs/{run_id}/actions/annotate", data=own | fields)


def written(browser: httpx.Client, run_id: str) -> tuple[list[str], dict[str, str], str | None]:
    run = browser.get(f"/v1/runs/{run_id}").json()
    return run["tags"], run["links"], run["note"]


def test_tags_links_and_note_are_shown_and_edited(browser: httpx.Client, run_id: str) -> None:
    answer = annotate(
        browser,
        run_id,
        tags="v0.2, baseline",
        links="pr = https://example.org/pull/7?a=b\r\n",
        note="First <line>.\r\nSecond.",
    )
    assert answer.headers["location"] == f"/runs/{run_id}"
    note = "First <line>.\nSecond."
    links = {"pr": "https://example.org/pull/7?a=b"}
    assert written(browser, run_id) == (["baseline", "v0.2"], links, note)
    page = browser.get(f"/runs/{run_id}").text
    assert 'href="https://example.org/pull/7?a=b" rel="noopener noreferrer">pr</a>' in page
    assert "First &lt;line&gt;." in page
    annotate(browser, run_id, tags="v0.2", links="pr = https://example.org/8", note=note)
    assert written(browser, run_id) == (["v0.2"], {"pr": "https://example.org/8"}, note)
    annotate(browser, run_id)
    assert written(browser, run_id) == ([], {}, None)


def test_what_somebody_else_added_meanwhile_stays(
    browser: httpx.Client, served: Served, run_id: str
) -> None:
    page = browser.get(f"/runs/{run_id}").text
    with served.client() as client:
        body = {"add_tags": ["theirs"], "links": {"wandb": "https://example.org/w"}, "note": "n"}
        client.patch(f"/v1/runs/{run_id}", json=body)
    browser.post(f"/runs/{run_id}/actions/annotate", data=hidden(page, "token") | {"tags": "mine"})
    assert written(browser, run_id) == (
        ["mine", "theirs"],
        {"wandb": "https://example.org/w"},
        "n",
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tags": "two words"}, "'two words'"),
        ({"links": "pr"}, "write LABEL = ADDRESS"),
        ({"links": "pr = javascript:alert(1)"}, "Links ('pr')"),
        ({"tags": ", ".join(f"t{number}" for number in range(40))}, "32"),
    ],
)
def test_what_cannot_be_stored_says_why(
    browser: httpx.Client, run_id: str, fields: dict[str, str], sentence: str
) -> None:
    answer = annotate(browser, run_id, **fields)
    assert 400 <= answer.status_code < 500
    assert sentence in text_of(answer.text)
    assert written(browser, run_id) == ([], {}, None)


def test_who_may_only_read_sees_them_and_has_no_form(
    story: Story, served: Served, browser: httpx.Client, run_id: str
) -> None:
    annotate(browser, run_id, tags="v0.2")
    token = hidden(browser.get(f"/runs/{run_id}").text, "token")
    demote(story, served, "runs:read")
    page = browser.get(f"/runs/{run_id}").text
    assert 'href="/?tag=v0.2"' in page
    assert "/actions/" not in page
    answer = browser.post(f"/runs/{run_id}/actions/annotate", data=token | {"tags": "mine"})
    assert answer.status_code == 403
    assert written(browser, run_id)[0] == ["v0.2"]


def test_the_list_is_filtered_by_tag(browser: httpx.Client, story: Story, run_id: str) -> None:
    other = story.submit()
    annotate(browser, run_id, tags="v0.2/rc")
    for path in ("/", "/dashboard/runs"):
        page = browser.get(path, params={"tag": "v0.2/rc"}).text
        assert f'data-run="{run_id}"' in page
        assert other not in page
        assert 'href="/?tag=v0.2/rc"' in page
    page = browser.get("/?tag=none").text
    assert "No run matches." in page
    assert "hillclimb runs --tag none" in page


def test_the_page_of_clusters_is_refreshed_in_parts(browser: httpx.Client) -> None:
    page = browser.get("/clusters").text
    assert '<script type="module" src="/static/clusters.js">' in page
    part = browser.get("/dashboard/clusters").text
    assert part.startswith('<div id="clusters">')
    assert "<html" not in part
    assert "No machines are rented now." in part
    assert page[page.index('<div id="clusters">') :].startswith(part.strip())
