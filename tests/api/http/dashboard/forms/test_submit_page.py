"""The submit page: a form with its plan, that makes one run, by whoever may submit."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.forms.conftest import demote, hidden, text_of

SMALL = {
    "spec.name": "from a form",
    "spec.data.env_keys": "booking, github",
    "spec.schedule.total_steps": "5",
}


def fields_of(browser: httpx.Client, **more: str) -> dict[str, str]:
    return hidden(browser.get("/submit").text, "token", "key", "view") | more


def num_runs(browser: httpx.Client) -> int:
    return len(browser.get("/v1/runs").json()["data"])


def test_the_page_begins_with_a_valid_run_and_its_plan(browser: httpx.Client) -> None:
    page = browser.get("/submit").text
    assert "Valid, with no warnings. No machines are rented" in text_of(page)
    assert page.index('id="plan-status"') < page.index(">Submit the run<")
    assert 'id="f-optimizer.lr" name="spec.optimizer.lr" value="" placeholder="0.00025"' in page
    assert "Peak learning rate." in page
    labels = set(re.findall(r'<label for="([^"]+)"', page))
    controls = set(re.findall(r'<(?:input|select|textarea) id="(f-[^"]+)"', page))
    assert controls == labels
    described = {
        each for ids in re.findall(r'aria-describedby="([^"]+)"', page) for each in ids.split()
    }
    assert [each for each in described if f'id="{each}"' not in page] == []


def test_a_form_makes_one_run_also_of_a_double_click(browser: httpx.Client) -> None:
    fields = fields_of(browser, **SMALL)
    answers = [browser.post("/submit", data=fields) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {303}
    location = answers[0].headers["location"]
    assert answers[1].headers["location"] == location
    made = browser.get(f"/v1{location}").json()
    assert made["name"] == "from a form"
    assert made["spec"]["data"]["env_keys"] == ["booking", "github"]
    assert made["spec"]["schedule"]["total_steps"] == 5
    assert num_runs(browser) == 1
    # Gone back to, changed and sent again: another run.
    changed = browser.post("/submit", data=fields | {"spec.name": "another"})
    assert changed.headers["location"] != location
    assert num_runs(browser) == 2


def test_the_run_equals_the_one_that_the_api_makes(browser: httpx.Client, served: Served) -> None:
    location = browser.post("/submit", data=fields_of(browser, **SMALL)).headers["location"]
    spec = {
        "name": "from a form",
        "data": {"env_keys": ["booking", "github"]},
        "schedule": {"total_steps": 5},
    }
    with served.client() as client:
        other = client.post("/v1/runs", json=spec).json()
    assert browser.get(f"/v1{location}").json()["spec"] == other["spec"]


@pytest.mark.parametrize(
    ("changes", "place", "sentence"),
    [
        ({"spec.optimizer.lr": "fast"}, "optimizer.lr", "write a number"),
        ({"spec.data.env_keys": "bookng"}, "", "booking"),
        ({"spec.name": "-"}, "name", "cannot be used"),
        ({"spec.learner.lora.rank": "0"}, "learner.lora.rank", "write 1 or more"),
        ({"spec.data.dataset": "nowhere@1"}, "data.dataset", "There is no dataset"),
    ],
)
def test_a_mistake_is_said_beside_its_field_in_the_words_of_the_api(
    browser: httpx.Client, changes: dict[str, str], place: str, sentence: str
) -> None:
    answer = browser.post("/submit", data=fields_of(browser, **SMALL) | changes)
    assert answer.status_code == 422
    assert "this cannot be submitted yet" in answer.text
    assert sentence in text_of(answer.text)
    for value in changes.values():
        assert f'"{value}"' in answer.text
    if place:
        beside = re.search(rf'id="e-{re.escape(place)}">([^<]+)<', answer.text)
        assert beside is not None
        assert sentence in html.unescape(beside[1])
        assert f'href="#f-{place}"' in answer.text
    assert num_runs(browser) == 0


def test_a_text_makes_the_same_run_and_can_be_edited_as_a_form(browser: httpx.Client) -> None:
    text = "name: pasted\r\ndata: {env_keys: [booking]}\r\noptimizer:\r\n  lr: 1.0e-3\r\n"
    fields = fields_of(browser) | {"view": "text", "text": text}
    form = browser.post("/submit/plan", data=fields | {"do": "form"}).text
    assert 'name="spec.optimizer.lr" value="0.001"' in form
    back = browser.post("/submit/plan", data=fields_of(browser, **SMALL) | {"do": "text"}).text
    assert "env_keys:\n  - booking" in html.unescape(back)
    location = browser.post("/submit", data=fields).headers["location"]
    assert browser.get(f"/v1{location}").json()["spec"]["optimizer"]["lr"] == 1e-3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [", "neither YAML nor JSON (line 1)"),
        ("- a", "A spec is a mapping"),
        ('{"name": "x", "name": "y", "data": {}}', "is there twice"),
        ("name: x\ndata: {env_keys: [booking]}\nlearning_rate: 1", "optimizer.lr"),
        ('{"name": "a\\u0000b", "data": {"env_keys": ["booking"]}}', "U+0000"),
    ],
)
def test_a_text_with_a_mistake_stays_as_it_is(
    browser: httpx.Client, text: str, sentence: str
) -> None:
    fields = fields_of(browser) | {"view": "text", "text": text}
    for path, do in (("/submit", "submit"), ("/submit/plan", "form"), ("/submit/plan", "plan")):
        page = browser.post(path, data=fields | {"do": do}).text
        assert sentence in text_of(page)
        assert '<textarea class="code" id="text"' in page
        assert text.split("\n")[0] in html.unescape(page)
    assert num_runs(browser) == 0


def test_a_preset_shows_its_machines_their_price_and_its_comments(browser: httpx.Client) -> None:
    page = browser.get("/submit", params={"preset": "qwen3-8b-8xh100"}).text
    assert re.search(r'name="spec.model.source" value="[^"]*Qwen3-8B[^"]*"', page)
    assert "H100" in text_of(page)
    text = browser.get("/submit", params={"preset": "qwen3-8b-8xh100", "view": "text"}).text
    assert "# " in html.unescape(text)
    missing = browser.get("/submit", params={"preset": "none"})
    assert (missing.status_code, "No such preset" in missing.text) == (404, True)


def test_a_run_can_be_copied_without_its_descent(browser: httpx.Client, story: Story) -> None:
    run_id = story.submit()
    assert f'href="/submit?run={run_id}"' in browser.get(f"/runs/{run_id}").text
    page = browser.get("/submit", params={"run": run_id}).text
    assert 'name="spec.name" value="climb"' in page
    assert browser.get("/submit", params={"run": "run_none"}).status_code == 404


def test_the_part_has_the_plan_and_the_commands_of_the_same_spec(browser: httpx.Client) -> None:
    fields = fields_of(browser, **SMALL) | {"part": "1"}
    part = browser.post("/submit/plan", data=fields).text
    assert part.startswith('<div id="outcome" data-status="Valid')
    assert "<html" not in part
    assert "name: from a form\n" in html.unescape(part)
    assert '"total_steps": 5' in html.unescape(part)
    wrong = browser.post("/submit/plan", data=fields | {"spec.optimizer.lr": "fast"}).text
    assert '<li data-place="optimizer.lr">' in wrong


def test_who_may_only_read_sees_no_button_and_is_refused(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    fields = fields_of(browser, **SMALL)
    assert 'href="/submit"' in browser.get("/").text
    demote(story, served, "runs:read")
    assert "/submit" not in browser.get("/").text
    for answer in (
        browser.get("/submit"),
        browser.post("/submit", data=fields),
        browser.post("/submit/plan", data=fields),
    ):
        assert answer.status_code == 403
    assert num_runs(browser) == 0


def test_a_form_of_another_site_makes_no_run(served: Served, browser: httpx.Client) -> None:
    for token in ("", "0" * 64):
        fields = fields_of(browser, **SMALL) | {"token": token}
        assert browser.post("/submit", data=fields).status_code == 401
        assert browser.post("/submit/plan", data=fields).status_code == 401
    assert num_runs(browser) == 0
    with served.browser() as nobody:
        assert (
            nobody.get("/submit?preset=x").headers["location"] == "/login?next=/submit%3Fpreset%3Dx"
        )
        assert nobody.post("/submit").headers["location"].startswith("/login")


def test_too_many_fields_are_refused(browser: httpx.Client) -> None:
    many = {f"spec.x{number}": "1" for number in range(600)}
    assert browser.post("/submit", data=fields_of(browser) | many).status_code == 400
