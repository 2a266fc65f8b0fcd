"""What nodes install: built of this code, with the model that a spec names by default."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from worker.skypilot.wheel import NoWheel, find_wheel


def test_the_wheel_of_the_tree_has_the_code_and_the_default_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    wheel = find_wheel(None)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "trainer/node/__main__.py" in names
    assert "hillclimb_assets/tiny-qwen3-a/model.safetensors" in names
    assert find_wheel(None) == wheel, "built once"


def test_a_wheel_that_is_given_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(NoWheel, match="no such file"):
        find_wheel(str(tmp_path / "hillclimb.whl"))
