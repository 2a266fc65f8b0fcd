"""The files of a learner: no pickle, the same bits back, and a table that says nothing else."""

from __future__ import annotations

import json
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from tests.trainer.fixtures.tiny import tiny_model
from trainer.errors import CheckpointError
from trainer.learners.inline import InlineLearner
from trainer.learners.saved.tensors import DTYPES, METADATA, TensorReader, TensorWriter

Table = dict[str, Any]


def restored(directory: Path, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    target = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    load(target, storage_reader=TensorReader(directory), no_dist=True)
    return target


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_tensors_of_every_type_and_shape_come_back_bit_for_bit(tmp_path: Path) -> None:
    drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    tensors = {f"of/{name}": (100 * drawn).to(dtype) for name, dtype in DTYPES.items()}
    tensors |= {
        "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "strided": drawn.t(),
    }
    save(tensors, storage_writer=TensorWriter(tmp_path), no_dist=True)
    for name, tensor in restored(tmp_path, tensors).items():
        assert tensor.dtype == tensors[name].dtype
        assert bytes(tensor.reshape(-1).view(torch.uint8)) == bytes(
            tensors[name].contiguous().reshape(-1).view(torch.uint8)
        ), name


def test_no_file_of_a_learner_is_a_pickle(tmp_path: Path) -> None:
    InlineLearner(tiny_model()).save(tmp_path)
    files = list((tmp_path / "learner").iterdir())
    assert sorted(file.name for file in files) == [METADATA, "rank-0.bin"]
    for file in files:
        with pytest.raises((ValueError, IndexError)):
            list(pickletools.genops(file.read_bytes()))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    InlineLearner(tiny_model()).save(tmp_path / "saved")
    return tmp_path / "saved"


def first(table: Table) -> Table:
    tensor: Table = next(iter(table["tensors"].values()))
    return tensor


CHANGES: dict[str, Callable[[Table], object]] = {
    "a file elsewhere": lambda t: first(t)["chunks"][0].update(file="../../other/rank-0.bin"),
    "another type": lambda t: first(t).update(dtype="complex64"),
    "a function": lambda t: first(t).update(dtype="save"),
    "more than the file": lambda t: first(t)["chunks"][0].update(first_byte=2**40),
    "more bytes": lambda t: first(t)["chunks"][0].update(num_bytes=2**40),
    "a larger tensor": lambda t: [
        each.update(shape=[2**40], chunks=[]) for each in t["tensors"].values()
    ],
    "less than nothing": lambda t: first(t)["chunks"][0].update(first_byte=-1),
    "outside of the tensor": lambda t: first(t)["chunks"][0].update(offset=[2**40, 0]),
    "other dimensions": lambda t: first(t)["chunks"][0].update(offset=[0] * 5),
    "no chunk": lambda t: first(t).update(chunks=[]),
    "another form": lambda t: t.update(format_version=2),
    "a key of its own": lambda t: t.update(planner_data={}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_table_that_says_anything_else_is_refused(
    saved: Path, change: Callable[[Table], object]
) -> None:
    file = saved / "learner" / METADATA
    table = json.loads(file.read_text())
    table["tensors"] = dict(
        sorted(table["tensors"].items(), key=lambda each: each[0], reverse=True)
    )
    change(table)
    file.write_text(json.dumps(table))
    with pytest.raises(CheckpointError):
        InlineLearner(tiny_model()).load(saved)


def test_a_file_that_ends_early_is_refused(saved: Path) -> None:
    file = saved / "learner" / "rank-0.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="ends within a tensor"):
        InlineLearner(tiny_model()).load(saved)
