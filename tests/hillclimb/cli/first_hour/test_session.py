"""`metrics`, `open`, `login`, `env`, `init`: what a first hour needs besides runs."""

from __future__ import annotations

import csv
import io
import re
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import CliRunner

from hillclimb.cli.commands import main
from hillclimb.cli.runs.results.metrics import curve
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.payloads.results.metrics import MetricPoint
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running(spec("climb"))
    for step in (1, 2, 3):
        story.push(run_id, story.step(run_id, step, {"booking": step / 4}))
    return run_id


def test_metrics_are_searched_by_a_part_of_their_name_or_a_pattern(hc: Invoke, run_id: str) -> None:
    every = hc("metrics", run_id).stdout
    assert {"policy/loss", "reward/avg_raw_reward", "timing/step"} <= set(every.split())
    for words in ("raw_rew", "reward/*raw*", "raw_rew,nothing"):
        found = hc("metrics", "climb", words).stdout
        assert "reward/avg_raw_reward" in found
        assert "timing" not in found
        assert "highest" in found
    assert "no metric fits" in hc("metrics", run_id, "nothing").stdout
    loss = from_json(hc("metrics", run_id, "loss", "--json"))["data"]
    assert [point["step"] for point in loss[0]["points"]] == [1, 2, 3]


def test_metrics_are_exported_point_by_point(hc: Invoke, run_id: str, tmp_path: Path) -> None:
    printed = hc("metrics", run_id, "policy/loss", "--csv", "-").stdout
    hc("metrics", run_id, "policy/loss", "--csv", str(tmp_path / "m.csv"))
    assert (tmp_path / "m.csv").read_text() == printed
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [(row["name"], row["step"]) for row in rows] == [("policy/loss", n) for n in "123"]
    assert float(rows[1]["value"]) == pytest.approx(0.05)


def test_a_curve_goes_from_the_lowest_to_the_highest_value() -> None:
    def points(*values: float) -> list[MetricPoint]:
        return [MetricPoint(step=n, attempt=1, value=v) for n, v in enumerate(values)]

    assert curve(points(3, 5, 7)) == "▁▅█"
    assert curve(points(2, 2)) == "▅▅"
    long = curve(points(*range(100)))
    assert (len(long), long[0], long[-1]) == (16, "▁", "█")


def test_open_prints_a_link_that_signs_in_once(hc: Invoke, served: Served, run_id: str) -> None:
    link = hc("open", "@last").stdout.strip()
    assert served.key not in link
    with httpx.Client(base_url=served.url, follow_redirects=True) as browser:
        question = browser.get(link)
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', question.text))
        page = browser.post("/login", data=fields)
        assert (page.status_code, page.url.path) == (200, f"/runs/{run_id}")
        assert "climb" in page.text
    assert httpx.get(link).status_code == 401
    assert hc("open", "nothing").exit_code == Exit.NOT_FOUND


def test_env_prints_what_a_shell_evaluates(hc: Invoke, served: Served) -> None:
    exports = hc("env").stdout
    script = f'{exports}\nprintf \'%s %s\' "$HILLCLIMB_API_URL" "$HILLCLIMB_API_KEY"'
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == f"{served.url} {served.key}"


def test_login_stores_a_key_that_works_for_this_user_alone(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HILLCLIMB_API_URL", "HILLCLIMB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HILLCLIMB_STATE_DIR", str(tmp_path / "no-stack"))
    monkeypatch.chdir(tmp_path)

    def invoke(*args: str, text: str = "") -> tuple[int, str]:
        result = CliRunner().invoke(main, [*args], input=text)
        return result.exit_code, result.output

    assert invoke("runs")[0] == Exit.UNREACHABLE
    wrong = invoke("login", "--url", served.url, text="hc_wrong\n")
    assert wrong[0] == Exit.REFUSED
    assert not (tmp_path / "config").exists()
    code, output = invoke("login", "--url", f"{served.url}/", text=f"{served.key}\n")
    assert (code, served.key in output) == (Exit.OK, False)
    (file,) = (tmp_path / "config" / "hillclimb").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert invoke("runs")[0] == Exit.OK
    file.write_text("{")
    assert "sign in again" in invoke("runs")[1]
    assert "forgotten" in invoke("logout")[1]
    assert "nothing was stored" in invoke("logout")[1]


def test_init_writes_a_spec_that_could_be_submitted(
    hc: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hc("init").exit_code == Exit.OK
    text = (tmp_path / "hillclimb.yaml").read_text()
    RunSpec.model_validate(yaml.safe_load(text))
    assert hc("plan", "hillclimb.yaml").exit_code == Exit.OK
    again = hc("init")
    assert (again.exit_code, "is there" in again.stderr) == (Exit.USAGE, True)
    assert hc("init", "--force").exit_code == Exit.OK
    assert hc("init", "big.yaml", "--preset", "qwen3-8b").exit_code == Exit.OK
    assert "Qwen3-8B" in (tmp_path / "big.yaml").read_text()
