"""The secrets of attempts: readable by the runner's user alone, and never quoted."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from worker.runner.secrets import AttemptSecrets


def test_secrets_are_kept_for_a_restarted_runner_and_readable_by_it_alone(tmp_path: Path) -> None:
    AttemptSecrets(tmp_path / "secrets").put("att_1", {"FLEET_API_KEY": "hunter2"})
    secrets = AttemptSecrets(tmp_path / "secrets")
    assert secrets.get("att_1") == {"FLEET_API_KEY": "hunter2"}
    places = (secrets.folder, *secrets.folder.iterdir())
    modes = [stat.S_IMODE(place.stat().st_mode) for place in places]
    assert modes == [0o700, 0o600]
    secrets.remove("att_1")
    assert secrets.get("att_1") == {}
    assert list(secrets.folder.iterdir()) == []


def test_an_attempt_without_secrets_has_no_file(tmp_path: Path) -> None:
    secrets = AttemptSecrets(tmp_path / "secrets")
    secrets.put("att_1", {})
    secrets.remove("att_1")
    assert not secrets.folder.exists()


def test_a_damaged_file_and_one_that_cannot_go_are_sentences_without_their_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = AttemptSecrets(tmp_path)
    (tmp_path / "att_1.json").write_text('{"FLEET_API_KEY": ["hunter2"]}')
    assert secrets.get("att_1") == {}
    (tmp_path / "att_2.json").mkdir()
    secrets.remove("att_2")
    assert "the secrets of attempt att_1 are not readable" in caplog.text
    assert "the secrets of attempt att_2 are not deleted" in caplog.text
    assert "hunter2" not in caplog.text
