"""Where a gang's Ray has its files: a folder that is ours alone."""

import os
import stat
from pathlib import Path

import pytest

from tests.trainer.node.test_settings import PAIR, TOLD
from trainer.node.ray_process import RayProcess, _make_own
from trainer.node.settings import NodeSettings


def test_the_folder_is_closed_to_others_and_ray_gets_one_inside() -> None:
    ray = RayProcess(settings=NodeSettings.from_environment(TOLD | PAIR), environ={})
    command = ray._command()
    inside = Path(command[command.index("--temp-dir") + 1])
    assert inside.parent == ray._folder
    assert len(str(inside)) < 30, "names of sockets are made of it"


def test_a_folder_of_ours_is_taken_up_and_closed(tmp_path: Path) -> None:
    folder = tmp_path / "hcr"
    folder.mkdir(mode=0o777)
    _make_own(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_only_a_folder_of_ours_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = RayProcess(settings=NodeSettings.from_environment(TOLD | PAIR), environ={})
    folder = tmp_path / "hcr"
    monkeypatch.setattr(RayProcess, "_folder", folder)
    folder.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    ray.delete_files()
    assert folder.exists()
    monkeypatch.undo()
    monkeypatch.setattr(RayProcess, "_folder", folder)
    ray.delete_files()
    assert not folder.exists()


def test_what_somebody_put_in_the_place_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "hcr"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="another account"):
        _make_own(link)
