"""The list of runs: filters, pages, figures, and rows that stay up to date."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import Text, cast, func, insert, select, true

from api.results.evals.conclusion import runs_without_gradient
from api.runs import store
from api.scheduling.advance import advance
from api.tables import Run, StepSignalRecord
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.http.dashboard.stored import sign_in


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


def names_in(page: httpx.Response) -> list[str]:
    return re.findall(r"<strong>([^<]+)</strong></a>", page.text)


def test_the_duration_of_a_run_is_counted_from_its_start_and_not_from_its_submission(
    story: Story, browser: httpx.Client
) -> None:
    story.running(spec("trains"))
    story.submit(spec("waits"))
    page = browser.get("/").text
    assert ">Duration</th>" in page
    rows = dict(
        re.findall(r'<strong>(trains|waits)</strong>.*?<td class="num">([–\d:]+)</td>', page, re.S)
    )
    assert rows["waits"] == "–"
    assert re.fullmatch(r"\d+(:\d\d)+", rows["trains"])


def of_kind(name: str, kind: str) -> RunSpec:
    return RunSpec.model_validate(spec(name).model_dump(mode="json") | {"kind": kind})


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["looked", "second", "first"]),
        ("kind=probe", ["looked"]),
        ("kind=train", ["second", "first"]),
        ("status=running", ["first"]),
        ("name=SEC", ["second"]),
        ("name=%25", []),
        ("status=nonsense", ["looked", "second", "first"]),
        ("status=running&kind=probe", []),
    ],
)
def test_a_filter_chooses_runs(
    story: Story, browser: httpx.Client, query: str, names: list[str]
) -> None:
    story.running(spec("first"))
    story.submit(spec("second"))
    story.submit(of_kind("looked", "probe"))
    page = browser.get(f"/?{query}")
    assert names_in(page)[: len(names) or None] == names
    assert ("No run matches." in page.text) == (not names)


def test_the_api_filters_by_kind_too(story: Story, served: Served) -> None:
    story.submit(spec("first"))
    story.submit(of_kind("looked", "probe"))
    with served.client() as client:
        found = client.get("/v1/runs", params={"kind": "probe"}).json()["data"]
        refused = client.get("/v1/runs", params={"kind": "nonsense"})
    assert [run["name"] for run in found] == ["looked"]
    assert refused.status_code == 422


def test_a_row_has_pass_rates_before_and_after_and_a_verdict(
    story: Story, browser: httpx.Client
) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    once = browser.get("/").text
    assert "<strong>20.0 %</strong>" in once
    assert "→" not in once
    assert browser.get("/dashboard/verdicts", params={"run": run_id}).json() == {}
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.8}))
    page = " ".join(browser.get("/").text.split())
    assert "20.0 →</span> <strong>80.0 %</strong>" in page
    verdict = browser.get("/dashboard/verdicts", params={"run": [run_id, "run_no"]}).json()
    assert verdict == {run_id: {"word": "improved", "tone": "good"}}


def test_the_rows_are_read_anew_without_the_page(story: Story, browser: httpx.Client) -> None:
    run_id = story.submit()
    assert 'data-status="queued"' in browser.get("/dashboard/runs").text
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    part = browser.get("/dashboard/runs").text
    assert 'data-status="running"' in part
    assert "<html" not in part
    assert "http-equiv" not in browser.get("/").text


def test_a_run_without_a_gradient_is_not_green(story: Story, browser: httpx.Client) -> None:
    stuck, climbed = (ended(story, name, rate) for name, rate in (("stuck", 0.0), ("up", 0.5)))
    moving = story.running(spec("moving"))
    page = browser.get("/").text
    tones = {run_id: tone_of(page, run_id) for run_id in (stuck, climbed, moving)}
    assert tones == {
        stuck: ("succeeded", "warn"),
        climbed: ("succeeded", ""),
        moving: ("running", ""),
    }
    for run_id, banner in ((stuck, "warn"), (climbed, "good")):
        assert browser.get(f"/dashboard/runs/{run_id}/banner").json()["tone"] == banner


def test_of_a_repeated_step_the_newest_attempt_says_whether_it_had_a_gradient(
    story: Story,
) -> None:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))

    def without() -> set[str]:
        with story.database.transaction() as session:
            run = session.get_one(Run, run_id)
            run.status = "succeeded"
            return runs_without_gradient(session, [run])

    assert without() == set()
    with story.database.transaction() as session:
        (old,) = session.scalars(select(StepSignalRecord).where(StepSignalRecord.run_id == run_id))
        values = {column.key: getattr(old, column.key) for column in old.__table__.columns}
        session.add(StepSignalRecord(**values | {"attempt": old.attempt + 1, "num_mixed": 0}))
    assert without() == {run_id}


def ended(story: Story, name: str, rate: float) -> str:
    """A run that trained two steps at this pass rate and succeeded."""
    run_id = story.running(spec(name))
    for step in (1, 2):
        story.push(run_id, story.step(run_id, step, {"booking": rate}))
    story.finish(run_id, 2)
    with story.database.transaction() as session:
        advance(session, store.lock_run(session, run_id), now=story.now)
    return run_id


def tone_of(page: str, run_id: str) -> tuple[str, str]:
    """Status and tone of the pill in a run's row."""
    row = page.partition(f'data-run="{run_id}"')[2].partition("</tr>")[0]
    found = re.search(r'class="pill" data-status="(\w+)"(?: data-tone="(\w+)")?', row)
    assert found is not None
    return found[1], found[2] or ""


def test_a_stranger_gets_neither_rows_nor_verdicts(story: Story, served: Served) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.8}))
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        assert run_id not in stranger.get("/dashboard/runs").text
        assert stranger.get("/dashboard/verdicts", params={"run": run_id}).json() == {}


def test_ten_thousand_runs_are_paged_and_the_page_comes_at_once(
    story: Story, browser: httpx.Client
) -> None:
    first = story.submit(spec("oldest"))
    copied = [
        column
        for column in Run.__table__.columns
        if column.computed is None and column.name not in ("id", "name")
    ]
    numbers = func.generate_series(0, 9_999).table_valued("number").render_derived()
    # Copied by PostgreSQL: of sixty megabytes sent to a busy server, it may read none for longer
    # than the kernel keeps such a connection (`LOST_NETWORK`).
    names = (
        func.concat("run_", func.lpad(cast(numbers.c.number, Text), 6, "0")),
        func.concat("many ", numbers.c.number),
    )
    rows = select(*names, *copied).select_from(Run).join(numbers, true()).where(Run.id == first)
    with story.database.transaction() as session:
        columns = ["id", "name", *(column.name for column in copied)]
        session.execute(insert(Run).from_select(columns, rows))
    story.database.close()  # its connections may have plans that were made for an empty table
    browser.get("/")
    took = []
    for _ in range(5):  # beside other processes one takes longer; a list of all runs, each does
        started = time.monotonic()
        page = browser.get("/")
        took.append(time.monotonic() - started)
    assert len(names_in(page)) == 50
    assert min(took) < 1.0
    seen = set(names_in(page))
    following = re.search(r'rel="next" href="([^"]+)"', page.text)
    assert following is not None
    second = browser.get("/" + following[1].replace("&amp;", "&"))
    assert len(names_in(second)) == 50
    assert not seen & set(names_in(second))
    assert browser.get("/?cursor=forged").status_code == 400
