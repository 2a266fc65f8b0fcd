"""Opens zip files that anybody may have made: the directory is measured before it is read.

`zipfile` reads the whole directory of a file into memory, an object per member: a file of 100 MB
may name millions. Nothing is unpacked by its name, and nothing is read beyond the limits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

END = struct.Struct("<4s4H2LH")
"""The end of a zip file: signature, disks, numbers of members, size and place of the directory."""
END_SIGNATURE, LOCATOR_SIGNATURE = b"PK\x05\x06", b"PK\x06\x07"
LOCATOR_BYTES = 20
MAX_DIRECTORY_BYTES = 1 << 20
ENCRYPTED = 0x1
UNREADABLE = (BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
"""Errors of `zipfile` and `gzip` for damaged content."""


class ArchiveRefused(Exception):
    """A zip file is damaged or beyond a limit; the message is a sentence about it."""


@contextmanager
def open_zip(path: Path, *, max_bytes: int) -> Iterator[ZipFile]:
    """Yield a zip file whose members have each another name and are stored or deflated.

    `max_bytes` limits all of them together, unpacked, as the directory says; `zipfile` reads no
    more of a member than that.

    Raises:
        ArchiveRefused: it is no such file, or beyond a limit.
    """
    try:
        check_directory(path)
        archive = ZipFile(path)
    except (*UNREADABLE, ValueError) as error:
        raise ArchiveRefused(f"the file is no zip, or was cut off: {error}") from error
    with archive:
        _check_members(archive.infolist(), max_bytes)
        yield archive


def check_directory(path: Path) -> None:
    """Refuse a directory that is large, and any but the plain end of a zip file.

    Raises:
        ArchiveRefused: it is one of these, or no zip file.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - END.size - LOCATOR_BYTES))
        tail = file.read()
    end = tail[-END.size :]
    if len(end) < END.size or not end.startswith(END_SIGNATURE):
        raise ArchiveRefused("the file is no zip, was cut off, or ends with a comment")
    if tail[: -END.size].startswith(LOCATOR_SIGNATURE):
        raise ArchiveRefused("the zip has more members or bytes than one of 4 GiB can have")
    if END.unpack(end)[5] > MAX_DIRECTORY_BYTES:
        raise ArchiveRefused(
            f"the zip's directory takes more than {MAX_DIRECTORY_BYTES:,} bytes: it has too many"
            " members"
        )


def _check_members(members: list[ZipInfo], max_bytes: int) -> None:
    names: set[str] = set()
    for member in members:
        if member.filename in names:
            raise ArchiveRefused(f"the zip has {member.filename!r} more than once")
        names.add(member.filename)
        is_known = member.compress_type in (ZIP_STORED, ZIP_DEFLATED)
        if member.flag_bits & ENCRYPTED or not is_known:
            raise ArchiveRefused(
                f"{member.filename!r} is encrypted or compressed in another way than a zip's own"
            )
    if sum(member.file_size for member in members) > max_bytes:
        raise ArchiveRefused(f"the zip unpacks to more than {max_bytes:,} bytes")
