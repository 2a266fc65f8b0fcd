"""Tensors of several ranks in one directory: their bytes as they are, and a table of them in JSON.

`learner.json` names every tensor with its type and shape, and the chunks that it was written in:
file, first byte, number of bytes, offset and shape within the tensor. Rank R writes `rank-R.bin`.
Whoever reads it executes nothing, however it was made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

METADATA = "learner.json"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_Count = Annotated[int, Field(ge=0, le=2**62)]
_Sizes = Annotated[tuple[_Count, ...], Field(max_length=32)]


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SavedChunk(_Described):
    """A part of a tensor in a file."""

    file: Annotated[str, Field(pattern=r"^rank-[0-9]{1,6}\.bin$")]
    first_byte: _Count
    num_bytes: _Count
    offset: _Sizes
    """Of the part within the tensor, per dimension."""
    shape: _Sizes


class SavedTensor(_Described):
    """A tensor: its type, its shape, and the chunks that together are it."""

    dtype: Literal[tuple(DTYPES)]  # type: ignore[valid-type]
    shape: _Sizes
    chunks: tuple[SavedChunk, ...]


class SavedTensors(_Described):
    """`learner.json`."""

    format_version: Literal[1] = 1
    tensors: dict[str, SavedTensor]


class TensorWriter(StorageWriter):
    """Writes a directory; one per rank."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew; the directory stays."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001 - torch's own interface
        """Make the directory."""
        self._directory.mkdir(parents=True, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan of this rank as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give each rank its file."""
        return [replace(plan, storage_data=f"rank-{rank}.bin") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's chunks one after the other. Raises OSError."""
        results: list[WriteResult] = []
        with (self._directory / plan.storage_data).open("wb") as file:
            for item in plan.items:
                tensor = planner.resolve_data(item)
                if item.tensor_data is None or not isinstance(tensor, torch.Tensor):
                    raise ValueError(f"{item.index.fqn} is no tensor")
                chunk = item.tensor_data.chunk
                first_byte = file.tell()
                for part in _bytes_of(tensor):
                    file.write(part)
                saved = SavedChunk(
                    file=plan.storage_data,
                    first_byte=first_byte,
                    num_bytes=file.tell() - first_byte,
                    offset=tuple(chunk.offsets),
                    shape=tuple(chunk.sizes),
                )
                results.append(
                    WriteResult(index=item.index, size_in_bytes=saved.num_bytes, storage_data=saved)
                )
            file.flush()
            os.fsync(file.fileno())
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the table, once every rank has written its file. Raises OSError."""
        chunks: dict[str, list[SavedChunk]] = {}
        for result in (each for of_rank in results for each in of_rank):
            chunks.setdefault(result.index.fqn, []).append(result.storage_data)
        tensors = {
            name: SavedTensor(
                dtype=_NAMES[kind.properties.dtype],
                shape=tuple(kind.size),
                chunks=tuple(chunks.get(name, ())),
            )
            for name, kind in metadata.state_dict_metadata.items()
            if isinstance(kind, TensorStorageMetadata)
        }
        fresh = self._directory / f"{METADATA}.part"
        with fresh.open("w") as file:
            file.write(SavedTensors(tensors=tensors).model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._directory / METADATA)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any: the directory is given to the constructor."""
        return True


class TensorReader(StorageReader):
    """Reads a directory of `TensorWriter`, with any number of ranks."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._saved: dict[MetadataIndex, tuple[torch.dtype, SavedChunk]] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew; the directory stays."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ANN401 - torch's own
        """Return the table of the tensors.

        Raises:
            OSError: it cannot be read.
            ValueError: it is malformed, or a chunk is not what its tensor consists of.
        """
        table = SavedTensors.model_validate_json((self._directory / METADATA).read_bytes())
        kinds, places = {}, {}
        for name, tensor in table.tensors.items():
            dtype = DTYPES[tensor.dtype]
            chunks: list[ChunkStorageMetadata] = []
            if sum(math.prod(each.shape) for each in tensor.chunks) != math.prod(tensor.shape):
                raise ValueError(f"the chunks of {name} are not all of it")
            for chunk in tensor.chunks:
                _check(name, tensor, chunk, dtype)
                part = ChunkStorageMetadata(torch.Size(chunk.offset), torch.Size(chunk.shape))
                chunks.append(part)
                places[MetadataIndex(name, part.offsets)] = (dtype, chunk)
            kinds[name] = TensorStorageMetadata(
                TensorProperties(dtype=dtype), torch.Size(tensor.shape), chunks
            )
        return Metadata(state_dict_metadata=dict(kinds), storage_data=places)

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,  # noqa: FBT001 - torch's own interface
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Take over the places of the chunks."""
        self._saved = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan of this rank as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return all ranks' plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read into the planner's tensors.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file ends before a chunk does.
        """
        for item in plan.items:
            dtype, chunk = self._saved[item.storage_index]
            part = self._read(dtype, chunk)
            for dimension, (start, size) in enumerate(
                zip(item.storage_offsets, item.lengths, strict=True)
            ):
                part = part.narrow(dimension, start, size)
            target = planner.resolve_tensor(item).detach()
            if target.size() != part.size():
                raise ValueError(f"{item.storage_index.fqn} has another shape")
            target.copy_(part)
            planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read(self, dtype: torch.dtype, chunk: SavedChunk) -> torch.Tensor:
        path = self._directory / chunk.file
        # Before memory is taken: the table may say anything.
        if path.stat().st_size < chunk.first_byte + chunk.num_bytes:
            raise ValueError(f"{chunk.file} ends within a tensor")
        content = bytearray(chunk.num_bytes)
        with path.open("rb") as file:
            file.seek(chunk.first_byte)
            file.readinto(content)
        if not content:
            return torch.empty(chunk.shape, dtype=dtype)
        return torch.frombuffer(content, dtype=dtype).reshape(chunk.shape)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any: the directory is given to the constructor."""
        return True


def _bytes_of(tensor: torch.Tensor) -> Iterator[bytes | memoryview]:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel():
        yield flat.view(torch.uint8).numpy().data


def _check(name: str, tensor: SavedTensor, chunk: SavedChunk, dtype: torch.dtype) -> None:
    """Raise ValueError for a chunk outside of its tensor, or of another number of bytes."""
    ends = [start + size for start, size in zip(chunk.offset, chunk.shape, strict=False)]
    same = len(chunk.offset) == len(chunk.shape) == len(tensor.shape)
    if not same or any(end > size for end, size in zip(ends, tensor.shape, strict=True)):
        raise ValueError(f"a chunk of {name} lies outside of it")
    if chunk.num_bytes != math.prod(chunk.shape) * dtype.itemsize:
        raise ValueError(f"a chunk of {name} has {chunk.num_bytes} bytes")
