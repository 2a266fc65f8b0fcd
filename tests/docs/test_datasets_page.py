"""`docs/datasets.md` says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hillclimb.datasets.format.rows import MAX_DEPTH, MODALITIES
from hillclimb.datasets.lint.findings import RULES
from hillclimb.datasets.read.raw import FIELDS, METADATA_FIELDS
from hillclimb.datasets.read.scanner import MAX_ROW_CHARS
from hillclimb.datasets.split.policies import PRESETS, Md5ThresholdPolicy

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "datasets.md").read_text()


def codes() -> str:
    rows = [
        f"| `{code}` | {rule.severity} | {rule.about} | {rule.remedy} |"
        for code, rule in RULES.items()
    ]
    return "\n".join(["| code | severity | found where | remedy |", "|---|---|---|---|", *rows])


def test_the_table_of_codes_is_that_of_the_code() -> None:
    found = re.search(r"<!-- begin codes -->\n(.*)\n<!-- end codes -->", PAGE, re.S)
    assert found is not None
    assert found.group(1) == codes(), "paste what this test expects"


def test_every_name_that_is_read_is_named() -> None:
    names = {name for names in FIELDS.values() for name in names} | set(METADATA_FIELDS)
    assert {name for name in names if f"`{name}" not in PAGE} == set()
    assert {name for name in MODALITIES if f"`{name}`" not in PAGE} == set()
    assert f"{MAX_DEPTH} levels deep" in PAGE
    assert f"{MAX_ROW_CHARS // 2**20} MiB" in PAGE


def test_the_table_of_presets_is_that_of_the_code() -> None:
    header = re.search(r"^\| preset \| (.*) \|$", PAGE, re.M)
    assert header is not None
    names = re.findall(r"`(\w+)`", header.group(1))
    for preset in PRESETS:
        policy = Md5ThresholdPolicy.model_validate({"preset": preset})
        values = " | ".join(json.dumps(getattr(policy, name)) for name in names)
        assert f"| `{preset}` | {values} |" in PAGE
