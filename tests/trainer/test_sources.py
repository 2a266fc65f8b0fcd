"""Where a policy comes from, and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from trainer.errors import ModelUnavailable
from trainer.sources import ASSETS_VARIABLE, assets_dir, resolve_source
from trainer.stores import locate
from trainer.stores.disk import DiskStore

REVISION = "0123456789abcdef0123456789abcdef01234567"


def test_builtin_names_are_looked_up_in_the_assets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert resolve_source("builtin:tiny") == tmp_path / "tiny"
    with pytest.raises(ModelUnavailable, match=r"no builtin model 'big'.*tiny"):
        resolve_source("builtin:big")
    with pytest.raises(ModelUnavailable):
        resolve_source("builtin:../tiny")


def test_without_the_variable_assets_are_those_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    root = assets_dir().parent
    assert assets_dir().name == "assets"
    assert (root / "trainer" / "models.py").is_file()


def test_a_path_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no config\.json"):
        resolve_source(str(tmp_path))


def hub_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout in which the hub's client keeps a model; the client itself stays offline."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    snapshot = root / "models--lab--small" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_a_hub_model_is_found_at_its_pinned_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub_cache(tmp_path, monkeypatch)
    assert resolve_source(f"hf:lab/small@{REVISION}") == snapshot
    other = "f" * 40
    with pytest.raises(ModelUnavailable, match=rf"lab/small at {other} from the hub"):
        resolve_source(f"hf:lab/small@{other}")


def test_a_model_in_s3_is_brought_here_without_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = DiskStore(tmp_path / "bucket")
    wanted = ["config.json", "model.safetensors", "tokenizer.json"]
    for name in (*wanted, "model.py", "old/config.json"):
        shelf.put(name, name.encode())
    asked: list[str] = []
    monkeypatch.setattr("trainer.sources.open_store", lambda url: asked.append(url) or shelf)
    directory = resolve_source("s3://models/qwen", tmp_path / "here")
    assert asked == ["s3://models/qwen"]
    assert sorted(path.name for path in directory.iterdir()) == wanted
    assert (directory / "model.safetensors").read_bytes() == b"model.safetensors"


def test_an_s3_source_without_a_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.sources.open_store", lambda _: locate.open_store(str(tmp_path)))
    with pytest.raises(ModelUnavailable, match=r"no config\.json"):
        resolve_source("s3://models/none", tmp_path / "here")
    with pytest.raises(ModelUnavailable, match="nowhere"):
        resolve_source("s3://models/none")
