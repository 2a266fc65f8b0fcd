"""`hillclimb experiment` against the real application, at 80 columns."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.api.admission.experiments.conftest import BASE, submit, train
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

SWEEP = ("--over", "optimizer.lr=1e-4,5e-4", "--seeds", "0,1,2")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(BASE))
    return str(path)


@pytest.fixture
def created(hc: Invoke) -> str:
    made = hc(
        *("experiment", "create", "v0.2.4", "--title", "larger learning rate"),
        *("--hypothesis", "The learning rate is too conservative."),
        *("--watch", "eval/all/pass_at_1 >= +0.05", "--watch", "signal_ratio > 0.1"),
        *("--change", "optimizer.lr=no PPO clipping", "--commit", "de6b4b4=Enable YaRN"),
    )
    assert made.exit_code == 0, made.output
    assert "no runs yet" in made.stdout
    return "v0.2.4"


def played(hc: Invoke, story: Story, spec_file: str, key: str) -> None:
    made = from_json(hc("experiment", "sweep", spec_file, "--experiment", key, *SWEEP, "--json"))
    for number, run in enumerate(made["runs"]):
        rate = 0.3 if number < 3 else 0.6 + number / 50
        metrics = {"reward/signal_ratio": 0.5}
        train(story, run["run_id"], 0.3, rate, metrics=metrics)


def test_an_experiment_is_swept_and_judged_at_80_columns(
    hc: Invoke, story: Story, created: str, spec_file: str
) -> None:
    played(hc, story, spec_file, created)
    shown = hc("experiment", "show", created)
    assert shown.exit_code == 0, shown.output
    assert "CONFIRMED (experiment-v1)" in shown.stdout
    arms = [line.split() for line in shown.stdout.splitlines() if line.startswith("lr=")]
    assert [row[0] for row in arms[:2]] == ["lr=0.0001", "lr=0.0005"]
    assert arms[1][-1] == "IMPROVED"
    assert "met  reward/signal_ratio > 0.1: 0.5" in shown.stdout
    tables = [line for line in shown.stdout.splitlines() if "  " in line and ":" not in line]
    assert all(len(line) <= 80 for line in tables), shown.stdout
    repeated = hc("experiment", "sweep", spec_file, "--experiment", created, *SWEEP, "--json")
    assert len(from_json(repeated)["runs"]) == 6
    listed = hc("experiment", "list").stdout.splitlines()
    assert listed[1].split()[:3] == ["v0.2.4", "–", "6"]


@pytest.mark.long
def test_the_report_is_written_with_figures_in_both_formats(
    hc: Invoke, story: Story, created: str, spec_file: str, tmp_path: Path
) -> None:
    played(hc, story, spec_file, created)
    more = ("--set", "data.train_tasks_per_env=4000", "--arm", "more data", "--seeds", "0,1,2")
    swept = from_json(
        hc("experiment", "sweep", spec_file, "--experiment", created, *more, "--json")
    )
    for run in swept["runs"][6:]:
        train(story, run["run_id"], 0.3, 0.4)
    target = tmp_path / "out"
    written = from_json(hc("experiment", "report", created, "--out", str(target), "--json"))
    assert written["word"] == "confirmed"
    names = {Path(path).relative_to(target).as_posix() for path in written["files"]}
    figures = ("learning_curves", "environments", "signal")
    assert names == {"experiments.md", "changelog.md"} | {
        f"figures/{name}.{ending}" for name in figures for ending in ("svg", "png")
    }
    text = (target / "experiments.md").read_text()
    for name in figures:
        assert f"](figures/{name}.svg)" in text
        ET.parse(target / "figures" / f"{name}.svg")
        assert (target / "figures" / f"{name}.png").read_bytes().startswith(PNG)
    assert "## v0.2.4 – larger learning rate" in (target / "changelog.md").read_text()
    first = (target / "figures" / "environments.svg").read_bytes()
    hc("experiment", "report", created, "--out", str(target))
    assert (target / "figures" / "environments.svg").read_bytes() == first


def test_without_the_library_the_pages_are_written_alone(
    hc: Invoke, created: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hillclimb.cli.studies.figures", None)
    refused = hc("experiment", "report", created, "--out", str(tmp_path / "a"))
    assert "pip install 'hillclimb[figures]'" in refused.stderr
    assert refused.exit_code == 2
    pages = hc("experiment", "report", created, "--out", str(tmp_path / "b"), "--no-figures")
    assert pages.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "changelog.md",
        "experiments.md",
    ]
    assert hc("experiment", "report", created).stdout.startswith("# v0.2.4 – larger")


def test_an_experiment_without_evaluations_has_pages_and_no_figures(
    hc: Invoke, created: str, tmp_path: Path
) -> None:
    written = from_json(hc("experiment", "report", created, "--out", str(tmp_path / "x"), "--json"))
    assert len(written["files"]) == 2


def test_runs_are_added_and_removed_and_parts_edited(
    hc: Invoke, story: Story, created: str, tmp_path: Path
) -> None:
    run_id = submit(story, "old run")
    added = hc("experiment", "add", created, run_id, "--role", "baseline", "--arm", "[red]old")
    assert "[red]old" in added.stdout
    assert "no runs yet" in hc("experiment", "remove", created, "1").stdout
    path = tmp_path / "text.yaml"
    path.write_text("issues: [{title: saturated, severity: high}]\nremarks: of the file\n")
    edited = from_json(
        hc(
            *("experiment", "edit", created, "--file", str(path), "--next", "more data"),
            *("--next", "curriculum", "--remarks", "of the option", "--json"),
        )
    )
    assert edited["text"]["next_steps"] == ["more data", "curriculum"]
    assert edited["text"]["remarks"] == "of the option"
    assert edited["text"]["issues"][0]["severity"] == "high"
    assert edited["text"]["watch"][0]["bound"] == 0.05


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("create", "v1"), 2, "--title TEXT"),
        (("create", "v0.2.4", "--title", "x"), 6, "There is an experiment 'v0.2.4' already"),
        (("create", "v2", "--title", "x", "--watch", "high"), 6, "is no threshold"),
        (("create", "v2", "--title", "x", "--parent", "v9"), 7, "There is no experiment 'v9'"),
        (("show", "v9"), 7, "There is no experiment 'v9'"),
        (("add", "v0.2.4", "run_0123456789"), 7, "There is no run"),
        (("sweep", "nowhere.yaml", "--experiment", "v0.2.4"), 2, "cannot read nowhere.yaml"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(
    hc: Invoke, created: str, arguments: tuple[str, ...], code: int, part: str
) -> None:
    result = hc("experiment", *arguments)
    assert result.exit_code == code, result.output
    assert part in " ".join(result.stderr.split())
