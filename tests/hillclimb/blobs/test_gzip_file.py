"""Gzip of somebody else: lines one by one, and never more than a limit."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hillclimb.blobs.archive.gzip_file import (
    RATIO_FROM_BYTES,
    GzipDamaged,
    GzipLimit,
    GzipTooLarge,
    stored_lines,
    unpacked_lines,
)
from hillclimb.blobs.base import BlobMissing
from hillclimb.blobs.disk import DiskStore

LIMIT = GzipLimit(unpacked_bytes=1000, line_bytes=100)
MEMBER = gzip.compress(bytes(16 << 20))
"""16 MiB of zeros in 16 kB; a file of several members unpacks to all of them."""


def test_lines_keep_their_ends_and_a_last_one_needs_none() -> None:
    data = gzip.compress(b"one\ntwo\r\n\nthree")
    assert list(unpacked_lines(data, LIMIT)) == [b"one\n", b"two\r\n", b"\n", b"three"]
    assert list(unpacked_lines(gzip.compress(b""), LIMIT)) == []


def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not() -> None:
    line = b"x" * 99 + b"\n"
    assert len(list(unpacked_lines(gzip.compress(line * 10), LIMIT))) == 10
    lines = unpacked_lines(gzip.compress(line * 10 + b"y"), LIMIT)
    assert [next(lines) for _ in range(10)] == [line] * 10
    with pytest.raises(GzipTooLarge, match="unpacks to more than 1,000 bytes"):
        next(lines)


def test_a_line_has_a_limit_of_its_own() -> None:
    assert list(unpacked_lines(gzip.compress(b"x" * 100), LIMIT)) == [b"x" * 100]
    with pytest.raises(GzipTooLarge, match="a line of more than 100 bytes"):
        list(unpacked_lines(gzip.compress(b"x" * 101), LIMIT))


def test_from_64_mib_on_a_file_may_not_unpack_to_far_more_than_its_size() -> None:
    num_members = 2 * RATIO_FROM_BYTES // (16 << 20)
    limit = GzipLimit(unpacked_bytes=1 << 40, line_bytes=1 << 40)
    with pytest.raises(GzipTooLarge, match="unpacks to more than 64 MiB"):
        list(unpacked_lines(MEMBER * num_members, limit))
    loose = GzipLimit(unpacked_bytes=1 << 40, line_bytes=1 << 40, ratio=2000)
    (line,) = unpacked_lines(MEMBER * num_members, loose)
    assert len(line) == 2 * RATIO_FROM_BYTES


@pytest.mark.parametrize(
    "data",
    [b"no gzip", gzip.compress(b"one\ntwo\n")[:-9], gzip.compress(b"one")[:-1] + b"?"],
    ids=["no gzip", "cut off", "wrong length"],
)
def test_what_is_torn_or_no_gzip_is_damaged(data: bytes) -> None:
    with pytest.raises(GzipDamaged, match="is damaged"):
        list(unpacked_lines(data, LIMIT))


def test_a_blob_is_read_from_the_store_and_a_missing_one_is_missing(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("a/b", gzip.compress(b"one\ntwo\n"))
    assert list(stored_lines(store, "a/b", LIMIT)) == [b"one\n", b"two\n"]
    for key in ("a/c", "a"):
        with pytest.raises(BlobMissing):
            list(stored_lines(store, key, LIMIT))
