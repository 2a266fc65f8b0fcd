"""A zip file that anybody may have made costs no more than its limits."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from hillclimb.blobs.archive.zip_file import ArchiveRefused, open_zip

LIMIT = 10_000


def zipped(*members: tuple[str, bytes], compression: int = ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def read(tmp_path: Path, content: bytes) -> dict[str, bytes]:
    path = tmp_path / "file.zip"
    path.write_bytes(content)
    with open_zip(path, max_bytes=LIMIT) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_plain_zip_is_read(tmp_path: Path) -> None:
    members = {"a": b"1" * 100, "b/c": b""}
    for compression in (ZIP_DEFLATED, ZIP_STORED):
        assert read(tmp_path, zipped(*members.items(), compression=compression)) == members


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "no zip"),
        (b"PK\x05\x06" + bytes(17), "no zip"),
        (zipped(("a", b"1"))[:-1], "no zip"),
        (zipped(("a", b"0" * (LIMIT + 1))), "unpacks to more"),
        (zipped(("a", b"0" * 6000), ("b", b"0" * 6000)), "unpacks to more"),
        (zipped(("a", b"1"), compression=ZIP_BZIP2), "compressed in another way"),
        (zipped(*((f"{number:0200}", b"") for number in range(5_000))), "too many"),
    ],
    ids=["empty", "short", "cut", "a bomb", "two halves", "bzip2", "many members"],
)
def test_what_is_beyond_a_limit_is_refused(tmp_path: Path, content: bytes, word: str) -> None:
    with pytest.raises(ArchiveRefused, match=word):
        read(tmp_path, content)


def test_a_member_that_understates_its_size_gives_no_more_than_that(tmp_path: Path) -> None:
    content = bytearray(zipped(("a", b"0" * 5_000_000)))
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<L", 10)
    with pytest.raises(Exception, match="CRC"):
        read(tmp_path, bytes(content))


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        content = zipped(("a", b"1"), ("a", b"2"))
    with pytest.raises(ArchiveRefused, match="more than once"):
        read(tmp_path, content)


def test_a_zip64_end_is_refused(tmp_path: Path) -> None:
    content = zipped(("a", b"1"))
    locator = b"PK\x06\x07" + bytes(16)
    with pytest.raises(ArchiveRefused, match="4 GiB"):
        read(tmp_path, content[:-22] + locator + content[-22:])
