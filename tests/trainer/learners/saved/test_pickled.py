"""Nothing in a checkpoint of earlier versions is executed: its pickle names tensors alone."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    MetadataIndex,
)

from tests.trainer.fixtures.tiny import tiny_model
from trainer.errors import CheckpointError, ModelUnavailable
from trainer.inputs.model.directory import load_policy
from trainer.learners.inline import InlineLearner
from trainer.learners.saved import state


class Payload:
    """Unpickled, it leaves a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint as earlier versions wrote it, with torch's own writer; and one as of today."""
    learner = InlineLearner(tiny_model())
    learner.save(tmp_path / "today")
    monkeypatch.setattr(state, "TensorWriter", FileSystemWriter)
    learner.save(tmp_path / "saved")
    monkeypatch.undo()
    assert (tmp_path / "saved" / "learner" / ".metadata").exists()
    return tmp_path / "saved"


def test_it_is_loaded_as_it_was_saved(saved: Path, tmp_path: Path) -> None:
    learner = InlineLearner(tiny_model(seed=1))
    learner.load(saved)
    learner.save(tmp_path / "again")
    for name in ("learner.json", "rank-0.bin"):
        again, today = (tmp_path / each / "learner" / name for each in ("again", "today"))
        assert again.read_bytes() == today.read_bytes()


class Attribute:
    """Unpickled, it is an attribute of something that the metadata may name."""

    def __init__(self, owner: object, name: str) -> None:
        self.of = owner, name

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, self.of


def test_it_is_loaded_also_where_a_member_was_pickled_as_an_attribute(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's 3.11.2 and other early ones of 3.11 do so with each member of an enumeration."""
    file = saved / "learner" / ".metadata"
    metadata: Any = FileSystemReader(str(saved / "learner")).read_metadata()
    monkeypatch.setattr(
        _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name))
    )
    file.write_bytes(pickle.dumps(metadata))
    assert b"getattr" in file.read_bytes()
    InlineLearner(tiny_model(seed=1)).load(saved)
    for attribute, refusal in (
        (Attribute(torch.Size, "count"), "its metadata names an attribute of Size"),
        (Attribute([[]], "append"), "its metadata names an attribute of list"),
        (Attribute(_MEM_FORMAT_ENCODING, "__class__"), "its metadata is malformed"),
    ):
        metadata.planner_data = attribute
        file.write_bytes(pickle.dumps(metadata))
        refused(saved, refusal)


def refused(saved: Path, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        InlineLearner(tiny_model()).load(saved)


@pytest.mark.parametrize("field", ["planner_data", "storage_meta", "whole"])
def test_a_function_in_the_metadata_is_not_called(saved: Path, proof: Path, field: str) -> None:
    file = saved / "learner" / ".metadata"
    metadata: Any = FileSystemReader(str(saved / "learner")).read_metadata()
    if field == "whole":
        metadata = Payload(proof)
    else:
        setattr(metadata, field, Payload(proof))
    file.write_bytes(pickle.dumps(metadata))
    refused(saved, "its metadata names")
    assert not proof.exists()


def test_a_value_that_is_no_tensor_is_not_unpickled(saved: Path, proof: Path) -> None:
    """torch itself opens such a value with `weights_only=False`."""
    folder = saved / "learner"
    metadata: Any = FileSystemReader(str(folder)).read_metadata()
    torch.save(Payload(proof), folder / "evil")
    metadata.state_dict_metadata["counters"] = BytesStorageMetadata()
    info = replace(next(iter(metadata.storage_data.values())), relative_path="evil", offset=0)
    info.length = (folder / "evil").stat().st_size
    metadata.storage_data[MetadataIndex("counters")] = info
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    refused(saved, "its metadata names|no tensor")
    assert not proof.exists()


def test_a_shard_with_a_payload_is_not_executed(saved: Path, proof: Path) -> None:
    shard = saved / "learner" / "__0_0.distcp"
    metadata: Any = FileSystemReader(str(saved / "learner")).read_metadata()
    torch.save({"x": Payload(proof)}, shard)
    for info in metadata.storage_data.values():
        info.offset, info.length = 0, shard.stat().st_size
    (saved / "learner" / ".metadata").write_bytes(pickle.dumps(metadata))
    refused(saved, "cannot load")
    assert not proof.exists()


@pytest.mark.parametrize("path", ["../../other/__0_0.distcp", "/etc/passwd", ".."])
def test_a_file_outside_of_the_checkpoint_is_not_read(saved: Path, path: str) -> None:
    metadata: Any = FileSystemReader(str(saved / "learner")).read_metadata()
    for info in metadata.storage_data.values():
        info.relative_path = path
    (saved / "learner" / ".metadata").write_bytes(pickle.dumps(metadata))
    refused(saved, "its metadata names the file")


def test_weights_in_a_pickle_are_no_model(tmp_path: Path, proof: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(proof)}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable):
        load_policy(tmp_path / "model")
    assert not proof.exists()
