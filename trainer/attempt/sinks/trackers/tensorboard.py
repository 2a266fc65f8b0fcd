"""TensorBoard: an event file per attempt, written without TensorFlow or its protobufs.

The file is a sequence of TFRecords: length (uint64), masked CRC-32C of the length, data, masked
CRC-32C of the data, little-endian. The data is a `tensorflow.Event`: wall_time (1, double), step
(2, int64), file_version (3, string), summary (5) with values (1) of tag (1) and simple_value (2).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from datetime import datetime

from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.tracking import TrackedRun

FOLDER = "tensorboard"
VERSION = b"brain.Event:2"
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C (Castagnoli), reflected."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""


class TensorBoardFile:
    """Appends figures to the attempt's event file, flushed with every step."""

    def __init__(self, plan: TrackingPlan) -> None:
        folder = plan.attempt_dir.path / FOLDER / plan.run_id
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.run = TrackedRun("tensorboard", plan.run_id)
        self._file = (folder / name).open("ab")
        self._write(_field(3, VERSION), time.time())

    def describe(self, facts: Mapping[str, object]) -> None:
        """Leave the facts out: the file has scalars alone."""

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        """Append the values of one global step."""
        values = b"".join(_field(1, _value(tag, number)) for tag, number in metrics.items())
        self._write(_key(2, _VARINT) + _varint(step) + _field(5, values), at.timestamp())

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Close the file."""
        del summary, succeeded
        self._file.close()

    def _write(self, fields: bytes, wall_time: float) -> None:
        self._file.write(record(_key(1, _FIXED64) + struct.pack("<d", wall_time) + fields))
        self._file.flush()


def record(data: bytes) -> bytes:
    """Return a TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _value(tag: str, number: float) -> bytes:
    return _field(1, tag.encode()) + _key(2, _FIXED32) + struct.pack("<f", number)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_table_entry, range(256)))
