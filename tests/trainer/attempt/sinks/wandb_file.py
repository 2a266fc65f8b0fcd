"""Reads what W&B wrote for an offline run: its log of protobuf records."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

HEADER, BLOCK = struct.Struct("<IHB"), 32_768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbRecord:
    """One offline run, as `wandb sync` would send it."""

    run: Any
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read_wandb(directory: Path) -> WandbRecord:
    """The one offline run under `directory`."""
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    found: WandbRecord | None = None
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found = WandbRecord(run=record.run, config=_items(record.run.config.update))
            continue
        if found is None:
            continue
        if kind == "config":
            found.config |= _items(record.config.update)
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    assert found is not None
    return found


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> list[bytes]:
    """The records of a log in the format of LevelDB, after W&B's seven bytes of its own."""
    assert data[:4] == b":W&B"
    found, parts, at = [], b"", 7
    while at + HEADER.size <= len(data):
        room = BLOCK - at % BLOCK
        if room < HEADER.size:
            at += room
            continue
        _, length, kind = HEADER.unpack_from(data, at)
        at += HEADER.size
        parts += data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            found.append(parts)
            parts = b""
        else:
            assert kind in (FIRST, MIDDLE)
    return found
