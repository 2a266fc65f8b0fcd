"""Tests of the names of shipped models."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.hardware.model.shipped import ASSETS_VARIABLE, why_not_shipped


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    return tmp_path


def add(assets: Path, name: str) -> None:
    (assets / name).mkdir()
    (assets / name / "config.json").write_text("{}")


def test_a_model_added_while_the_service_runs_is_known(assets: Path) -> None:
    add(assets, "tiny-a")
    assert why_not_shipped("builtin:tiny-a") is None
    why = "no model 'tiny-b' is shipped with Hillclimb; did you mean 'tiny-a'?"
    assert why_not_shipped("builtin:tiny-b") == why
    add(assets, "tiny-b")
    assert why_not_shipped("builtin:tiny-b") is None
    assert why_not_shipped("builtin:large") == (
        "no model 'large' is shipped with Hillclimb; there are tiny-a, tiny-b"
    )


def test_no_name_is_refused_where_there_are_no_models(assets: Path) -> None:
    assert list(assets.iterdir()) == []
    assert why_not_shipped("builtin:tiny-a") is None


def test_a_path_through_the_models_is_no_name(assets: Path) -> None:
    add(assets, "tiny-a")
    assert why_not_shipped("builtin:../assets/tiny-a") is not None
    assert why_not_shipped("lab/model") is None
