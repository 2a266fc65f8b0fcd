"""Reads earlier checkpoints without trusting them: who writes to the store is no author.

Until `tensors` the metadata were those of `torch.distributed.checkpoint`: a pickle, which may name
any function to call, and values that are no tensors were unpickled. Here a file may name only what
the metadata of tensors consists of; the tensors themselves are read by `torch.load` with
`weights_only`. Nothing writes this form any more.
"""

from __future__ import annotations

import pickle
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.serialization import _get_layout

_MEMORY_FORMATS: type[Enum] = metadata._MEM_FORMAT_ENCODING  # noqa: SLF001 - files name it
_NAMED: tuple[Any, ...] = (
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.ChunkStorageMetadata,
    metadata.TensorStorageMetadata,
    metadata.TensorProperties,
    metadata.StorageMeta,
    _MEMORY_FORMATS,
    filesystem._StorageInfo,  # noqa: SLF001 - files name it
    _get_layout,
)


def _member(enumeration: object, name: str) -> object:
    """Return a member of torch's memory formats: Python 3.11.2 pickles one as a call of getattr."""
    if enumeration is not _MEMORY_FORMATS:
        # Without its repr, which a few bytes of pickle can make as large as memory.
        owner = enumeration if isinstance(enumeration, type) else type(enumeration)
        raise pickle.UnpicklingError(f"its metadata names an attribute of {owner.__qualname__}")
    return _MEMORY_FORMATS[name]


_CLASSES: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _NAMED},
    ("torch", "Size"): torch.Size,
    ("builtins", "getattr"): _member,
    # The folder that it was written to: a path that can only be read.
    ("pathlib", "PosixPath"): PurePosixPath,
    ("pathlib._local", "PosixPath"): PurePosixPath,
}
"""What a file may name, besides types of numbers: data classes, a table of layouts, and a member of
an enumeration."""
_MALFORMED = (AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """Return what a pickle names; raises UnpicklingError for all but `_CLASSES` and dtypes."""
        allowed = _CLASSES.get((module, name))
        if allowed is None and module == "torch":
            dtype = getattr(torch, name, None)
            allowed = dtype if isinstance(dtype, torch.dtype) else None
        if allowed is None:
            raise pickle.UnpicklingError(f"its metadata names {module}.{name}, which is no tensor")
        return allowed


class PickledReader(FileSystemReader):
    """torch's reader of a directory, for tensors alone."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ANN401 - as torch's
        """Return the metadata of the directory's tensors.

        Raises:
            OSError: it cannot be read.
            ValueError: it is malformed, names anything but tensors, or a file elsewhere.
            pickle.UnpicklingError: it is none, or names what is no part of metadata.
        """
        path = self._get_metadata_path(kwargs.get("rank"))
        with self.fs.create_stream(path, "rb") as file:
            try:
                read = _Unpickler(file).load()
            except _MALFORMED as fault:
                raise ValueError(f"its metadata is malformed: {fault!r}") from fault
        checked = _checked(read)
        checked.storage_meta = checked.storage_meta or metadata.StorageMeta()
        checked.storage_meta.load_id = self.load_id
        return checked


def _checked(read: object) -> Metadata:
    """Return metadata without values that torch would unpickle, and files elsewhere."""
    if not isinstance(read, Metadata) or not isinstance(read.storage_data, dict):
        raise ValueError("its metadata is malformed")  # noqa: TRY004 - a fault of the file
    for name, kind in read.state_dict_metadata.items():
        if not isinstance(kind, TensorStorageMetadata):
            raise ValueError(f"{name} is no tensor")  # noqa: TRY004 - a fault of the file
    for info in read.storage_data.values():
        path = info.relative_path
        if not isinstance(path, str) or "/" in path or path.startswith(".."):
            raise ValueError(f"its metadata names the file {path!r:.200}")
    return read
