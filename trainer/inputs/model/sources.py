"""Resolves `model.source` to a directory: shipped with Hillclimb, on the hub, in S3, or local."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from hillclimb.blobs.base import BlobMissing, StoreError, StoreFull, StoreRefused
from hillclimb.blobs.locate import open_store
from hillclimb.hardware.model.shipped import BUILTIN, assets_dir, shipped_models
from trainer.errors import ModelUnavailable, StoreUnavailable
from trainer.inputs.model import hf_hub

_HUB, _S3 = "hf:", "s3://"
WITHOUT_WEIGHTS = ("*.json", "*.jinja", "tiktoken.model")
"""Files that suffice to read and write a model's tokens."""
MODEL_FILES = (*WITHOUT_WEIGHTS, "*.safetensors")
"""Files of a model that are downloaded: weights, config, tokenizer; never code."""


def resolve_source(
    source: str, downloads: Path | None = None, *, patterns: Sequence[str] = MODEL_FILES
) -> Path:
    """Return the model directory of `model.source`, downloaded where needed.

    A model of the hub lands in the hub's own cache (`HF_HOME`), one of S3 under `downloads`,
    which S3 needs; it should belong to the attempt alone, because objects in S3 can be replaced.
    `patterns` selects the files to download.

    Raises:
        ModelUnavailable: it does not exist, access is denied, or it holds no `config.json`.
        StoreUnavailable: the hub or the store is unreachable: a later attempt may succeed.
        StoreFull, OSError: no space is left for it.
    """
    if source.startswith(BUILTIN):
        directory = _builtin(source.removeprefix(BUILTIN))
    elif source.startswith(_HUB):
        directory = hf_hub.fetch(source.removeprefix(_HUB), patterns)
    elif source.startswith(_S3):
        directory = _from_store(source, downloads, patterns)
    else:
        directory = Path(source)
    if not (directory / "config.json").is_file():
        raise ModelUnavailable(
            f"model.source {source!r} is not a Hugging Face directory: no config.json"
        )
    return directory


def read_vocab_size(directory: Path) -> int:
    """Return the size of the vocabulary of a model of any architecture.

    Raises:
        ModelUnavailable: its config does not have it.
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
    known = shipped_models()
    if name not in known:
        shipped = ", ".join(known) or "none"
        raise ModelUnavailable(f"no builtin model {name!r} in {assets_dir()} (there: {shipped})")
    return assets_dir() / name


def _from_store(url: str, downloads: Path | None, patterns: Sequence[str]) -> Path:
    if downloads is None:
        raise ModelUnavailable(f"no directory to download {url} into")
    directory = downloads / hashlib.sha256(url.encode()).hexdigest()[:16]
    try:
        store = open_store(url)
        for key in store.list(""):
            path = Path(key)
            if len(path.parts) == 1 and any(path.match(pattern) for pattern in patterns):
                store.get_file(key, directory / key)
    except StoreFull:
        raise
    except StoreError as fault:
        lasts = isinstance(fault, BlobMissing | StoreRefused)
        kind = ModelUnavailable if lasts else StoreUnavailable
        raise kind(f"cannot get the model from {url}: {fault}") from fault
    return directory
