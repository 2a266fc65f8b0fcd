"""Writes a zip as a stream: member by member, in memory that does not grow with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from hillclimb.protocol.payloads.studies.capsule import CapsuleMember

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every member: the bytes must not depend on when they are written."""
UNIX, READABLE = 3, 0o100644 << 16

Members = Iterable[tuple[str, Iterable[bytes]]]


class _Outlet:
    """A file without positions: what is written waits here until it is taken."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Do nothing: what was written can still be taken."""

    def take(self) -> bytes:
        content, self._written = b"".join(self._written), []
        return content


Seal = Callable[[Mapping[str, CapsuleMember]], bytes]


def zip_stream(
    members: Members, last: str | None = None, seal: Seal | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a zip with these members, then the member `last` if there is one.

    `seal` returns the content of `last` from size and SHA-256 of every other member. The same
    members give the same bytes.
    """
    outlet, sizes = _Outlet(), dict[str, CapsuleMember]()
    with ZipFile(outlet, "w") as archive:
        for name, chunks in members:
            digest, size = hashlib.sha256(), 0
            with archive.open(_info(name), "w", force_zip64=True) as member:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    member.write(chunk)
                    yield outlet.take()
            sizes[name] = CapsuleMember(sha256=digest.hexdigest(), size_bytes=size)
        if last is not None and seal is not None:
            archive.writestr(_info(last), seal(sizes))
    yield outlet.take()


def _info(name: str) -> ZipInfo:
    info = ZipInfo(name, EPOCH)
    info.compress_type = ZIP_STORED if name.endswith(".gz") else ZIP_DEFLATED
    info.create_system, info.external_attr = UNIX, READABLE
    return info
