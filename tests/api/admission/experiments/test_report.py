"""The Markdown of experiments: the seeds' template, from data, whatever people wrote."""

from __future__ import annotations

import re

import pytest

from api.admission.experiments.markdown import cell, code, inline, quoted
from hillclimb.stats.intervals import points_text
from tests.api.admission.experiments.conftest import BASE, Call, submit, train
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story

HOSTILE = "a | b\n# Title\n<script>alert(1)</script> [x](javascript:y) `c|d` ![i](u) **bold**"


def page(served: Served, path: str) -> str:
    with served.client() as client:
        answer = client.get(f"/v1/experiments{path}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/markdown")
    return answer.text


def rows(text: str) -> list[list[str]]:
    """Return the cells of all lines that are of tables; an escaped pipe parts nothing."""
    return [
        [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


@pytest.fixture
def judged(create: Call, call: Call, story: Story) -> None:
    create(
        changes=[
            {"key": "optimizer.lr", "rationale": "no PPO clipping was seen"},
            {"key": "prompt", "rationale": "a system prompt of our own"},
        ],
        commits=[{"sha": "de6b4b4", "summary": "Enable YaRN"}],
        pull_request="https://github.com/NovaSky-AI/SkyRL/pull/976",
        issues=[{"title": "Saturated", "severity": "high", "description": "100% from step 0"}],
        works=["github improves"],
        fails=["most are flat"],
        next_steps=["raise it again"],
        remarks="First line\nSecond line",
    )
    sweep = {
        "base": BASE,
        "over": [{"key": "optimizer.lr", "values": [1e-4, 5e-4]}],
        "seeds": [0, 1, 2],
    }
    for number, run in enumerate(call("POST", "/v0.2.4/sweep", sweep)["runs"]):
        train(story, run["run_id"], 0.3, 0.3 if number < 3 else 0.7)


@pytest.mark.usefixtures("judged")
def test_the_report_has_the_sections_of_the_seeds_log(served: Served) -> None:
    text = page(served, "/v0.2.4/report")
    assert text.startswith("# v0.2.4 – larger learning rate\n")
    assert "**Hypothesis:** The learning rate is too conservative." in text
    assert "**Verdict:** **CONFIRMED** – lr=0.0005: " in text
    cells = rows(text)
    assert ["`optimizer.lr`", "`0.0001`", "`0.0005`", "no PPO clipping was seen"] in cells
    assert ["`prompt`", "–", "–", "a system prompt of our own"] in cells
    assert ["Saturated", "HIGH", "100% from step 0"] in cells
    (overall,) = [row for row in cells if row[0] == "**OVERALL**" and row[-1] == "IMPROVED"]
    assert overall[1:3] == ["30.0 %", "**70.0 %**"]
    assert overall[3].startswith("**+40.0 (")
    for line in (
        "- [ ] raise it again",
        "- `de6b4b4` Enable YaRN",
        "**PR:** https://github.com/NovaSky-AI/SkyRL/pull/976",
        "> Second line",
        "- github improves",
    ):
        assert line in text.splitlines(), line
    assert "Rule experiment-v1" in text
    for table in re.split(r"\n\n", text):
        widths = {len(row) for row in rows(table)}
        assert len(widths) <= 1, table


@pytest.mark.usefixtures("judged")
def test_the_changelog_has_every_experiment_newest_first(
    served: Served, create: Call, call: Call
) -> None:
    create(key="v0.2.5", parent="v0.2.4", title="more data")
    text = page(served, "/changelog")
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["## v0.2.5 – more data", "## v0.2.4 – larger learning rate"]
    assert "**Goes on from:** v0.2.4" in text
    assert "the experiment has no run" in text
    first = page(served, "/changelog?limit=1")
    assert "v0.2.4 –" not in first
    assert "Older experiments are left out." in first


def test_a_single_run_has_the_table_of_step_0_and_the_last(
    create: Call, call: Call, served: Served, story: Story
) -> None:
    create()
    run_id = submit(story, "fleet_tool_use")
    train(story, run_id, 0.25, 0.5)
    call("POST", "/v0.2.4/runs", {"run_id": run_id})
    text = page(served, "/v0.2.4/report")
    cells = rows(text)
    assert ["Environment", "Step 0", "Step 4", "Delta (95 %)", "n", "p", "Status"] in cells
    assert any(row[:3] == ["booking", "25.0 %", "**50.0 %**"] for row in cells)


def test_what_people_write_changes_nothing_around_it(
    create: Call, call: Call, served: Served, story: Story
) -> None:
    create(
        title=HOSTILE,
        hypothesis=HOSTILE,
        changes=[{"key": HOSTILE, "rationale": HOSTILE}],
        issues=[{"title": HOSTILE, "description": HOSTILE}],
        works=[HOSTILE],
        next_steps=[HOSTILE],
        remarks=f"{HOSTILE}\n```\nopen",
        pull_request=HOSTILE,
    )
    run_id = submit(story, "run")
    train(story, run_id, 0.25, 0.5)
    call("POST", "/v0.2.4/runs", {"run_id": run_id, "arm": "x | y `z"})
    text = page(served, "/v0.2.4/report")
    assert sum(line.startswith("#") for line in text.splitlines()) == 1
    outside_code = re.sub(r"`[^`\n]+`", "", text)
    assert not re.search(r"(?<!\\)<script", outside_code)
    assert not re.search(r"(?<!\\)\]\(", outside_code)
    assert not [line for line in text.splitlines() if line.startswith(("```", "    "))]
    for table in re.split(r"\n\n", text):
        assert len({len(row) for row in rows(table)}) <= 1, table


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain words", "plain words"),
        ("two\nlines", "two lines"),
        ("# head", "\\# head"),
        ("- item", "\\- item"),
        ("1. item", "\\1. item"),
        ("a_b*c _d_", "a_b\\*c \\_d\\_"),
        ("`code_a`", "`code_a`"),
        ("open ` tick", "open \\` tick"),
        ("<b>&amp;", "\\<b>\\&amp;"),
        ("> quote", "\\> quote"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_only_code_is_markdown_in_a_line(text: str, line: str) -> None:
    assert inline(text) == line


def test_cells_keep_their_pipes_and_are_bounded() -> None:
    assert cell("a|b `c|d`") == "a\\|b `c\\|d`"
    assert len(cell("x" * 5000)) == 300
    assert code("a`b\nc") == "`a'b c`"
    assert quoted("a\n\n# b") == ["> a", ">", "> \\# b"]


def test_a_change_of_nothing_has_no_minus() -> None:
    assert [points_text(each) for each in (-0.0, -0.0004, 0.0, -0.057, None)] == [
        *("+0.0", "+0.0", "+0.0", "-5.7", "–")
    ]
