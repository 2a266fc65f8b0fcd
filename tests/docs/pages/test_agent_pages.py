"""Pages for people and agents in trouble: each command and key in them exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.pages.named_commands import ROOT, commands, fault, is_key, keys

DOCS = ROOT / "docs"
PAGES = (
    *("agents.md", "agents/SKILL.md", "tutorial.md", "runbook.md", "training-mechanics.md"),
    *("first-run.md", "own-environment.md", "own-gpu.md", "own-cluster.md", "accept.md"),
)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_is_one_of_the_command_line(page: str) -> None:
    lines = commands((DOCS / page).read_text())
    assert len(lines) >= 3
    assert [problem for line in lines if (problem := fault(line))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_key_of_the_page_is_one_of_the_spec(page: str) -> None:
    assert [key for key in keys((DOCS / page).read_text()) if not is_key(key)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_the_page_leads_to_a_file(page: str) -> None:
    text = (DOCS / page).read_text()
    links = [each for each in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in each]
    here = (DOCS / page).parent
    assert [each for each in links if not Path(here / each).exists()] == []


@pytest.mark.parametrize(
    "line",
    [
        "hillclimb frobnicate RUN",
        "hillclimb fork RUN --sett optimizer.lr=1",
        "hillclimb experiment sing v1",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    assert fault(line)


def test_a_key_that_does_not_exist_is_noticed() -> None:
    assert is_key("optimizer.lr")
    assert is_key("backend.skypilot.max_hours")
    assert not is_key("optimizer.rate")
    assert list(keys("`optimizer.rate: 3` and `docs.md` and `eval.interval`")) == [
        "optimizer.rate",
        "eval.interval",
    ]


def test_every_code_of_the_runbook_is_one_of_the_code() -> None:
    text = re.sub(r"^```.*?^```", "", (DOCS / "runbook.md").read_text(), flags=re.M | re.S)
    codes = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    sources = [
        path.read_text()
        for package in ("api", "hillclimb", "trainer")
        for path in (ROOT / package).rglob("*.py")
    ]
    known = {word for source in sources for word in re.findall(r"[a-z]+(?:_[a-z]+)+", source)}
    assert len(codes) > 15
    assert sorted(codes - known) == []


@pytest.mark.parametrize("page", ["runbook.md", "training-mechanics.md"])
def test_every_metric_of_the_page_is_one_of_the_metrics_page(page: str) -> None:
    metrics = (DOCS / "metrics.md").read_text()
    named = re.findall(
        r"`((?:reward|policy|timing|trainer|eval|data)/[\w/{}]+)`", (DOCS / page).read_text()
    )
    assert [each for each in named if f"`{each}`" not in metrics] == []


def test_the_scripted_agent_found_what_the_page_says() -> None:
    found = json.loads((ROOT / "benchmarks/results/scripted_agent.json").read_text())
    rates = found["pass_at_1"]
    first, second = (f"{100 * rate:.1f} %" for rate in rates["variants"])
    row = f"| {100 * rates['baseline']:.1f} % | {first}, {second} | {found['word'].upper()} |"
    assert row in (DOCS / "agents.md").read_text()
    assert found["fourth_run"]["code"] == "grant_exhausted"
    assert f"{found['word'].upper()}" in found["changelog"]
    assert len(found["variants"]) + 1 == found["grant"]["num_runs_used"]
