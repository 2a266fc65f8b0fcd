"""What came with the launch is read once and then lies nowhere."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from trainer.node.errors import NodeMisconfigured, NodeRunning
from trainer.node.state.journal import NodeJournal, belongs_to_job
from trainer.node.state.secrets_file import SecretsFile


def test_the_file_is_read_and_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({"HILLCLIMB_BOOTSTRAP_TOKEN": "hcx_code"}))
    told = {"HILLCLIMB_SECRETS_FILE": str(file)}
    given = SecretsFile.read(told)
    assert given.values == {"HILLCLIMB_BOOTSTRAP_TOKEN": "hcx_code"}
    assert "hcx_code" not in repr(given)
    for _ in range(2):
        given.delete()
        assert not file.exists()
    with pytest.raises(NodeMisconfigured, match="another process has read and deleted it"):
        SecretsFile.read(told)
    assert SecretsFile.read({}).values == {}


def test_a_file_that_makes_no_sense_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"TOKEN": ["do-not-tell"]}')
    with pytest.raises(NodeMisconfigured, match=f"{file} cannot be read") as found:
        SecretsFile.read({"HILLCLIMB_SECRETS_FILE": str(file)})
    assert "do-not-tell" not in str(found.value)


def test_notes_are_one_machines_and_keep_the_first_nonce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NodeJournal(tmp_path, "n" * 32).record.nonce == "n" * 32
    assert NodeJournal(tmp_path, "o" * 32).record.nonce == "n" * 32
    assert belongs_to_job(tmp_path, "n" * 32)
    assert not belongs_to_job(tmp_path, "o" * 32)
    assert not belongs_to_job(tmp_path / "elsewhere", "n" * 32)
    here = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    with pytest.raises(NodeRunning, match=f"the machine {here} has this attempt"):
        NodeJournal(tmp_path, "p" * 32)
