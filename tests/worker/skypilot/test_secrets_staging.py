"""A launch's secrets are this account's alone, and gone when they are not needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from worker.skypilot.secrets_staging import SecretsStaging


def test_nobody_else_can_read_what_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "launches"
    folder.mkdir(mode=0o755)
    kept = SecretsStaging(folder)
    file = kept.put("hc-1", {"TOKEN": "do-not-tell"})
    assert json.loads(kept.put("hc-1", {"TOKEN": "newer"}).read_text()) == {"TOKEN": "newer"}
    assert [each.stat().st_mode & 0o777 for each in (folder, file.parent, file)] == [
        *(0o700, 0o700),
        0o600,
    ]
    kept.drop("hc-1")
    kept.drop("hc-1")
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_no_folder_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "launches").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="another account"):
        SecretsStaging(tmp_path / "launches").put("hc-1", {"TOKEN": "do-not-tell"})
    assert list((tmp_path / "real").iterdir()) == []
