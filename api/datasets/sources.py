"""Fetches a file of tasks from a source that the operator allows.

The service reads with the operator's credentials, so an arbitrary address could name any bucket
that they open. Sources are therefore allowed by prefix, and users choose only the rest of the path.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from api.datasets.errors import DatasetTooLarge, SourceRefused
from hillclimb.blobs.allowed import NoAddress, is_in_store
from hillclimb.blobs.base import BlobMissing, StoreError, StoreRefused, checked_key
from hillclimb.blobs.locate import open_store

log = logging.getLogger(__name__)

SCHEMES = ("s3", "file")


def allowed_prefixes(setting: str) -> tuple[str, ...]:
    """Return the prefixes in a setting: addresses separated by white space."""
    return tuple(setting.split())


def is_address(source: str) -> bool:
    """Return True if a source is an address and not the name of a version."""
    return "://" in source


def fetch_source(
    address: str,
    prefixes: Sequence[str],
    target: Path,
    *,
    max_bytes: int,
    stores: Sequence[str] = (),
) -> None:
    """Write the file at an allowed address to `target`.

    `stores` are the addresses of the blob stores, in which every project's files lie: none of them
    is a source, whatever the prefixes cover.

    Raises:
        SourceRefused: no prefix covers the address, it lies in a blob store, or there is no file.
        DatasetTooLarge: the file exceeds the size limit of uploads.
        StoreError: the store does not answer.
    """
    store_url, key = _allowed(address, prefixes)
    _refuse_stores(address, stores)
    source = open_store(store_url)
    try:
        if (size := source.size(key)) > max_bytes:
            raise DatasetTooLarge(
                f"{address} has {size:,} bytes, and the limit is {max_bytes:,}: compress it,"
                " or raise HILLCLIMB_DATASET_MAX_MB."
            )
        source.get_file(key, target)
    except BlobMissing as error:
        raise SourceRefused(f"There is no file at {address}.") from error
    except StoreRefused as error:
        log.warning("datasets: %s cannot be read: %s", address, error)
        raise SourceRefused(
            f"The service cannot read {address} (credentials, bucket or region): ask its operator,"
            " or upload the file."
        ) from error


def _refuse_stores(address: str, stores: Sequence[str]) -> None:
    try:
        is_closed = is_in_store(address, stores)
    except NoAddress as error:
        raise SourceRefused(f"{error}.") from error
    if is_closed:
        raise SourceRefused(
            f"{address} lies in the blob store of this service, which has the files of all"
            " projects: upload the file, or name a version of a dataset (NAME@N)."
        )


def _allowed(address: str, prefixes: Sequence[str]) -> tuple[str, str]:
    """Return the store of the allowed prefix of an address, and the key in it."""
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or parts.query or parts.fragment:
        raise SourceRefused(
            f"{address} is not a source: write s3://BUCKET/PATH or file:///PATH, without a query."
        )
    for prefix in prefixes:
        allowed = urlsplit(prefix)
        start = allowed.path.strip("/")
        key = parts.path.lstrip("/")
        same_place = (allowed.scheme, allowed.netloc) == (parts.scheme, parts.netloc)
        if same_place and (not start or key.startswith(f"{start}/")):
            inside = key[len(start) :].lstrip("/")
            try:
                return urlunsplit(allowed._replace(fragment="")), checked_key(inside)
            except StoreError as error:
                raise SourceRefused(f"{address} is not the address of a file.") from error
    readable = ", ".join(urlunsplit(urlsplit(each)._replace(query="")) for each in prefixes)
    raise SourceRefused(
        f"{address} is not among the sources that this service may read"
        f" ({readable or 'none'}): upload the file, or ask the operator to add its prefix"
        " to HILLCLIMB_DATASET_SOURCES."
    )
