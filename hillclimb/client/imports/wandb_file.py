"""Reads a W&B offline file (`run-ID.wandb`) without W&B's package, which is not installed here.

The file is a log in LevelDB's format after seven bytes of its own; each record is a message of
`wandb_internal.proto`, of which four fields are read. Checked against files of wandb 0.31.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hillclimb.client.errors import ImportSourceError

MAGIC, HEADER_BYTES = b":W&B", 7
CHUNK, BLOCK_BYTES = struct.Struct("<IHB"), 32_768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MAX_RECORD_BYTES = 64 << 20
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""
MAX_VARINT_BYTES = 10

# Numbers of fields in wandb_internal.proto.
HISTORY, RUN = 2, 17
ITEM, STEP = 1, 2
STEP_NUM = 1
KEY, NESTED_KEY, INTEGER, NUMBER, VALUE_JSON = 1, 2, 5, 6, 16
RUN_ID, DISPLAY_NAME = 1, 8

Field = tuple[int, int, int | bytes]
"""Number, wire type and value of a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    """An offline run: its names and the rows of its history."""

    run_id: str
    name: str
    rows: tuple[dict[str, object], ...]
    is_cut_off: bool
    """The last record is incomplete, as after a crash."""


def read_offline_run(path: Path) -> OfflineRun:
    """Return the run of a `.wandb` file, or of the one file in a folder such as `offline-run-…`.

    Raises:
        ImportSourceError: there is no such file, or it is damaged before its end.
    """
    file = _find(path)
    names: dict[int, str] = {}
    rows: list[dict[str, object]] = []
    is_cut_off = False
    try:
        with file.open("rb") as content:
            for record in _records(content):
                if record is None:
                    is_cut_off = True
                    break
                for number, kind, value in _fields(record):
                    if kind != BYTES or not isinstance(value, bytes):
                        continue
                    if number == RUN:
                        names |= _names(value)
                    elif number == HISTORY:
                        rows.append(_row(value))
    except (ValueError, UnicodeDecodeError, OSError, struct.error) as error:
        raise ImportSourceError(f"{file} cannot be read: {error}") from error
    run_id = names.get(RUN_ID) or file.stem.removeprefix("run-")
    return OfflineRun(
        run_id=run_id,
        name=names.get(DISPLAY_NAME) or run_id,
        rows=tuple(rows),
        is_cut_off=is_cut_off,
    )


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.wandb")) if path.is_dir() else []
    if len(files) != 1:
        raise ImportSourceError(
            f"{path} is no .wandb file, nor a folder with one of them (it has {len(files)})"
        )
    return files[0]


def _records(content: BinaryIO) -> Iterator[bytes | None]:
    """Yield the records of the log; None if the last one is incomplete.

    Raises:
        ValueError: the file is not W&B's, or its chunks are out of order.
    """
    if content.read(HEADER_BYTES)[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin as W&B's files do")
    parts, is_open = bytearray(), False
    for kind, data in _chunks(content):
        if data is None:
            yield None
            return
        if kind not in (FULL, FIRST, MIDDLE, LAST) or (kind in (MIDDLE, LAST)) != is_open:
            raise ValueError("a chunk of its log is damaged")
        parts += data
        if len(parts) > MAX_RECORD_BYTES:
            raise ValueError(f"a record has more than {MAX_RECORD_BYTES:,} bytes")
        is_open = kind in (FIRST, MIDDLE)
        if not is_open:
            yield bytes(parts)
            parts.clear()
    if is_open:
        yield None


def _chunks(content: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield kind and data of each chunk; data is None for one that the file's end cuts off."""
    position = HEADER_BYTES
    while True:
        room = BLOCK_BYTES - position % BLOCK_BYTES
        if room < CHUNK.size:
            position += len(content.read(room))
        head = content.read(CHUNK.size)
        if not head:
            return
        if len(head) < CHUNK.size:
            yield FULL, None
            return
        _, length, kind = CHUNK.unpack(head)
        data = content.read(length)
        position += CHUNK.size + length
        yield kind, data if len(data) == length else None


def _fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message; raises ValueError where it is damaged."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, position = _varint(message, position)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a record has a field of type {kind}")
        end = position + length
        if end > len(message):
            raise ValueError("a record is cut off")
        yield number, kind, message[position:end]
        position = end


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(MAX_VARINT_BYTES):
        if position + index >= len(message):
            break
        byte = message[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a record has a number that is cut off")


def _names(run: bytes) -> dict[int, str]:
    return {
        number: value.decode()
        for number, _, value in _fields(run)
        if number in (RUN_ID, DISPLAY_NAME) and isinstance(value, bytes)
    }


def _row(history: bytes) -> dict[str, object]:
    row: dict[str, object] = {}
    for number, _, value in _fields(history):
        if not isinstance(value, bytes):
            continue
        if number == ITEM:
            name, figure = _item(value)
            if figure is not None:
                row[name] = figure
        elif number == STEP:
            # proto3 leaves out a 0.
            row["_step"] = next((v for n, _, v in _fields(value) if n == STEP_NUM), 0)
    return row


def _item(item: bytes) -> tuple[str, object]:
    """Return name and value of an item; None for a value that is no number."""
    keys: dict[int, list[str]] = {KEY: [], NESTED_KEY: []}
    figure: object = None
    for number, _, value in _fields(item):
        if number in keys and isinstance(value, bytes):
            keys[number].append(value.decode())
        elif number == NUMBER and isinstance(value, bytes):
            (figure,) = struct.unpack("<d", value)
        elif number == INTEGER and isinstance(value, int):
            figure = (value >> 1) ^ -(value & 1)
        elif number == VALUE_JSON and isinstance(value, bytes):
            figure = json.loads(value)
    name = next((key for key in keys[KEY] if key), "/".join(keys[NESTED_KEY]))
    return name, figure if isinstance(figure, int | float) else None
