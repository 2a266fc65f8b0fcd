"""Files of experiment trackers that the trainers of a run stored, as a zip."""

from __future__ import annotations

from collections.abc import Iterator

from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.zip_stream import zip_stream
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import run_key, tracking_file

BLOCK_BYTES = 4 << 20


def tracking_keys(store: BlobStore, run_id: str, *, attempts: int) -> dict[str, str]:
    """Return the keys of the stored files by their names in the zip, `attempt-N/...`.

    Raises:
        ArtifactNotFound: no attempt has stored any.
        StoreError: the store does not respond.
    """
    start = len(run_key(run_id, ""))
    keys: dict[str, str] = {}
    for attempt in range(1, attempts + 1):
        folder = run_key(run_id, tracking_file(attempt, ""))
        within = tracking_file(attempt, "")
        for key in store.list(folder.rstrip("/")):
            name = key[start:]
            keys[name.replace(within, f"attempt-{attempt}/", 1)] = key
    if not keys:
        raise ArtifactNotFound(
            f"Run {run_id} has no files of trackers: tracking.wandb.mode offline and"
            " tracking.tensorboard write some."
        )
    return keys


def tracking_zip(store: BlobStore, keys: dict[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a zip of the files."""
    return zip_stream((name, _blocks(store, key)) for name, key in sorted(keys.items()))


def _blocks(store: BlobStore, key: str) -> Iterator[bytes]:
    size = store.size(key)
    for start in range(0, size, BLOCK_BYTES):
        yield store.get_range(key, start, min(BLOCK_BYTES, size - start))
