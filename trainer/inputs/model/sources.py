"""From `model.source` to a directory: shipped with Hillclimb, on the hub, in S3, or on the disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from trainer import hub
from trainer.errors import ModelUnavailable, StoreUnavailable
from trainer.stores.base import BlobMissing, StoreError, StoreFull, StoreRefused
from trainer.stores.locate import open_store

ASSETS_VARIABLE = "HILLCLIMB_ASSETS_DIR"
"""Environment variable that says where the models shipped with Hillclimb are."""

_BUILTIN, _HUB, _S3 = "builtin:", "hf:", "s3://"
WITHOUT_WEIGHTS = ("*.json", "*.jinja", "tiktoken.model")
"""What is enough to read and write a model's tokens."""
_WANTED = (*WITHOUT_WEIGHTS, "*.safetensors")
"""What of a model's files is brought here: weights, config, tokenizer; never code."""


_PACKED = "hillclimb_assets"
"""What `assets/` is called beside the packages of a wheel, where the name must be our own."""


def assets_dir() -> Path:
    """Directory of the shipped models.

    `HILLCLIMB_ASSETS_DIR`, else that of the wheel we are installed from, else `assets/` of the
    checkout.
    """
    if given := os.environ.get(ASSETS_VARIABLE):
        return Path(given)
    root = Path(__file__).resolve().parent.parent
    packed = root / _PACKED
    return packed if packed.is_dir() else root / "assets"


def resolve_source(
    source: str, downloads: Path | None = None, *, wanted: Sequence[str] = _WANTED
) -> Path:
    """Return the model directory that `model.source` names, bringing it here where needed.

    A model of the hub lands in the hub's own cache (`HF_HOME`), one of S3 under `downloads`,
    which S3 needs; it should belong to the attempt alone, because objects in S3 can be replaced.
    `wanted`: patterns of the files to bring.

    Raises:
        ModelUnavailable: it is not there, is not for us, or holds no `config.json`.
        StoreUnavailable: the hub, or the store that it is in, is away: another time it may go well.
        StoreFull, OSError: no space is left for it.
    """
    if source.startswith(_BUILTIN):
        directory = _builtin(source.removeprefix(_BUILTIN))
    elif source.startswith(_HUB):
        directory = hub.fetch(source.removeprefix(_HUB), wanted)
    elif source.startswith(_S3):
        directory = _from_store(source, downloads, wanted)
    else:
        directory = Path(source)
    if not (directory / "config.json").is_file():
        raise ModelUnavailable(
            f"model.source {source!r} is not a Hugging Face directory: no config.json"
        )
    return directory


def read_vocab_size(directory: Path) -> int:
    """Return how many tokens a model of any architecture has embeddings for.

    Raises:
        ModelUnavailable: its config does not say.
    """
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        # Models of text and images keep what concerns text in a section of its own.
        return int(config.get("text_config", config)["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise ModelUnavailable(
            f"{path} does not say how many tokens there are: {fault!r}"
        ) from fault


def _builtin(name: str) -> Path:
    assets = assets_dir()
    known = sorted(path.parent.name for path in assets.glob("*/config.json"))
    if name not in known:
        shipped = ", ".join(known) or "none"
        raise ModelUnavailable(f"no builtin model {name!r} in {assets} (there: {shipped})")
    return assets / name


def _from_store(url: str, downloads: Path | None, wanted: Sequence[str]) -> Path:
    if downloads is None:
        raise ModelUnavailable(f"nowhere to bring {url} to")
    directory = downloads / hashlib.sha256(url.encode()).hexdigest()[:16]
    try:
        store = open_store(url)
        for key in store.list(""):
            path = Path(key)
            if len(path.parts) == 1 and any(path.match(pattern) for pattern in wanted):
                store.get_file(key, directory / key)
    except StoreFull:
        raise
    except StoreError as fault:
        lasts = isinstance(fault, BlobMissing | StoreRefused)
        kind = ModelUnavailable if lasts else StoreUnavailable
        raise kind(f"cannot get the model from {url}: {fault}") from fault
    return directory
