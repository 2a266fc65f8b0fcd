"""`docs/verified.md` tells the truth about what asks for `experimental: true`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from hillclimb.client.spec_file import assign
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.rules.experimental_features import experimental_features
from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec, spec_body

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "verified.md").read_text()
SHARED = {"schedule": {"total_steps": 3, "train_batch_size": 4, "mini_batch_size": 2}}


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def setting_of(row: list[str]) -> str | None:
    """What a row's last cell asks for; several keys are joined by `and`."""
    found = re.fullmatch(r"`([^`]+)`(?: and `([^`]+)`)*", row[3])
    return row[3][1:-1] if found else None


def spec_with(setting: str, *, experimental: bool) -> RunSpec:
    """A spec that asks for what a table's cell names, `section.key: value`."""
    spec: dict[str, Any] = spec_body(**SHARED, experimental=experimental)
    for each in setting.split("` and `"):
        key, _, value = each.partition(": ")
        assign(spec, f"{key}={value}")
    return RunSpec.model_validate(spec)


TRAINER = {row[0]: row for row in rows("Trainer")}
NEVER = [row for row in TRAINER.values() if row[1] == "never"]


def test_every_path_has_one_row_and_one_of_three_states() -> None:
    every = [*rows("Trainer"), *rows("Service")]
    assert {row[1] for row in every} <= {"CPU", "GPU", "never"}
    assert len({row[0] for row in every}) == len(every)


@pytest.mark.parametrize("row", [*TRAINER.values(), *rows("Service")], ids=lambda row: row[0][:40])
def test_whatever_a_row_names_exists(row: list[str]) -> None:
    named = re.findall(r"`((?:tests|benchmarks|docs)/[^`]+)`", row[2])
    assert [path for path in named if not (ROOT / path).exists()] == []
    if row[1] != "never":
        assert named, f"{row[0]} was run, but nothing says by what"


@pytest.mark.parametrize("row", NEVER, ids=lambda row: row[0][:40])
def test_a_path_that_was_never_run_is_taken_only_as_an_experiment(row: list[str]) -> None:
    setting = setting_of(row)
    if setting is None:
        assert re.search(r"refused on a machine with a GPU|no key|not the spec", row[2]), row
        return
    with pytest.raises(ValidationError, match="was never run: set experimental to true"):
        spec_with(setting, experimental=False)
    assert spec_with(setting, experimental=True).experimental


@pytest.mark.parametrize(
    "row", [row for row in TRAINER.values() if row[1] != "never"], ids=lambda row: row[0][:40]
)
def test_a_path_that_was_run_asks_for_nothing_more(row: list[str]) -> None:
    setting = setting_of(row)
    if setting is None:
        assert row[3] == "default"
        return
    assert not spec_with(setting, experimental=False).experimental


def test_every_refusal_has_a_row() -> None:
    settings = [setting for row in NEVER if (setting := setting_of(row))]
    refused = [spec_with(setting, experimental=True) for setting in settings]
    found = [next(iter(experimental_features(spec))) for spec in refused]
    assert len(set(found)) == len(settings)
    source = (ROOT / "hillclimb/spec/rules/experimental_features.py").read_text()
    assert len(re.findall(r"^ +yield (?!from)", source, re.M)) == len(settings)


def test_the_example_settings_are_yaml() -> None:
    for row in TRAINER.values():
        if setting := setting_of(row):
            assert all(isinstance(yaml.safe_load(each), dict) for each in setting.split("` and `"))


def test_the_page_of_deadlines_names_keys_and_reasons_that_exist() -> None:
    page = (ROOT / "docs" / "deadlines.md").read_text()
    spec = make_spec().model_dump(mode="json")
    for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)`", page):
        assert key in spec[section], f"{section}.{key}"
    ends = {"engine_failed", "step_timeout", "run_timeout"}
    assert ends <= set(re.findall(r"`([a-z_]+)`", page))
    assert ends <= {reason.value for reason in ReasonCode}
    timeouts = {
        f"{section}.{key}"
        for section in ("environment", "schedule")
        for key in spec[section]
        if key.endswith("_timeout_s")
    }
    assert timeouts <= {".".join(each) for each in re.findall(r"`([a-z]+)\.([a-z_]+)`", page)}
