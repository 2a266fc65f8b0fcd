"""What came with the launch is read once and then lies nowhere."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from trainer.node.errors import NodeMisconfigured, NodeRunning
from trainer.node.given import Given
from trainer.node.journal import NodeJournal, is_of


def test_the_file_is_read_and_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_text(json.dumps({"HILLCLIMB_EXCHANGE_CODE": "hcx_code"}))
    told = {"HILLCLIMB_GIVEN": str(file)}
    given = Given.read(told)
    assert given.values == {"HILLCLIMB_EXCHANGE_CODE": "hcx_code"}
    assert "hcx_code" not in repr(given)
    for _ in range(2):
        given.forget()
        assert not file.exists()
    with pytest.raises(NodeMisconfigured, match="another process has read it"):
        Given.read(told)
    assert Given.read({}).values == {}


def test_a_file_that_makes_no_sense_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_text('{"TOKEN": ["do-not-tell"]}')
    with pytest.raises(NodeMisconfigured, match=f"{file} cannot be read") as found:
        Given.read({"HILLCLIMB_GIVEN": str(file)})
    assert "do-not-tell" not in str(found.value)


def test_notes_are_one_machines_and_keep_the_first_nonce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NodeJournal(tmp_path, "n" * 32).notes.nonce == "n" * 32
    assert NodeJournal(tmp_path, "o" * 32).notes.nonce == "n" * 32
    assert is_of(tmp_path, "n" * 32)
    assert not is_of(tmp_path, "o" * 32)
    assert not is_of(tmp_path / "elsewhere", "n" * 32)
    here = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    with pytest.raises(NodeRunning, match=f"the machine {here} carries this attempt"):
        NodeJournal(tmp_path, "p" * 32)
