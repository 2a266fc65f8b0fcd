"""Files that a tenant may name: below a prefix of the operator's, and in no blob store.

Service and trainers read with the operator's credentials, and every project's checkpoints and
rollouts lie in the same store: an address that a tenant chooses is therefore compared with both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_S3, _FILE = "s3://", "file://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,62}")


class NoAddress(ValueError):
    """A text names no file or folder; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A folder or file: in a bucket, or on a machine (an empty bucket)."""

    bucket: str
    segments: tuple[str, ...]

    def covers(self, other: FileLocation) -> bool:
        """Return True if the other is this place or lies below it."""
        start = other.segments[: len(self.segments)]
        return self.bucket == other.bucket and self.segments == start


def place_of(address: str) -> FileLocation:
    """Return the place that `s3://BUCKET/PATH`, `file:///PATH` or an absolute path names.

    Raises:
        NoAddress: it is none of these, or `..`, `%` or a query hide which place is meant.
    """
    if address.startswith(_S3):
        bucket, _, path = address.removeprefix(_S3).partition("/")
        is_plain = _BUCKET.fullmatch(bucket) and not any(mark in address for mark in "?#%\\")
    else:
        bucket, path = "", address.removeprefix(_FILE)
        is_plain = path.startswith("/") and not (path != address and any(m in path for m in "?#%"))
    segments = tuple(filter(None, path.split("/")))
    if not is_plain or not address.isprintable() or {".", ".."} & set(segments):
        raise NoAddress(
            f"{address!r:.300} is not s3://BUCKET/PATH or an absolute path without '..' and '%'"
        )
    return FileLocation(bucket, segments)


def place_of_store(url: str) -> FileLocation:
    """Return the place of a blob store's address, as `hillclimb.blobs.locate` reads it."""
    parts = urlsplit(url)
    path = unquote(parts.path) if parts.scheme else os.path.normpath(Path(url).absolute())
    bucket = parts.netloc if parts.scheme == "s3" else ""
    return FileLocation(bucket, tuple(filter(None, path.split("/"))))


def is_in_store(address: str, stores: Sequence[str]) -> bool:
    """Tell whether an address lies in one of the stores, also behind a symbolic link on this disk.

    Raises:
        NoAddress: as `place_of`.
    """
    places = [place_of(address)]
    closed = [place_of_store(each) for each in stores]
    if not places[0].bucket:
        places.append(_real(places[0]))
        closed += [_real(each) for each in closed if not each.bucket]
    return any(store.covers(place) for store in closed for place in places)


def is_below(address: str, prefixes: Sequence[str]) -> bool:
    """Tell whether an address is one of the prefixes or lies below one.

    Raises:
        NoAddress: as `place_of`, also for a prefix.
    """
    place = place_of(address)
    return any(place_of(prefix).covers(place) for prefix in prefixes)


def _real(place: FileLocation) -> FileLocation:
    path = os.path.realpath("/" + "/".join(place.segments))
    return FileLocation("", tuple(filter(None, path.split("/"))))
