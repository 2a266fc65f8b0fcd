"""Where a policy comes from, and what is said when it cannot be had."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import huggingface_hub.constants
import pytest

from hillclimb.blobs import locate
from hillclimb.blobs.base import BlobMissing, StoreError, StoreFull, StoreRefused
from hillclimb.blobs.disk import DiskStore
from hillclimb.hardware.model import shipped
from hillclimb.hardware.model.shipped import ASSETS_VARIABLE, assets_dir
from trainer.errors import ModelUnavailable, StoreUnavailable
from trainer.inputs.model.sources import resolve_source

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
    assert (root / "trainer" / "types.py").is_file()


def test_from_a_wheel_they_are_beside_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "hillclimb/hardware/model/shipped.py"))
    assert assets_dir() == tmp_path / "assets"
    (tmp_path / "hillclimb_assets").mkdir()
    assert assets_dir() == tmp_path / "hillclimb_assets"


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
    monkeypatch.setattr(
        "trainer.inputs.model.sources.open_store", lambda url: asked.append(url) or shelf
    )
    directory = resolve_source("s3://models/qwen", tmp_path / "here")
    assert asked == ["s3://models/qwen"]
    assert sorted(path.name for path in directory.iterdir()) == wanted
    assert (directory / "model.safetensors").read_bytes() == b"model.safetensors"


def test_an_s3_source_without_a_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trainer.inputs.model.sources.open_store", lambda _: locate.open_store(str(tmp_path))
    )
    with pytest.raises(ModelUnavailable, match=r"no config\.json"):
        resolve_source("s3://models/none", tmp_path / "here")
    with pytest.raises(ModelUnavailable, match="no directory to download"):
        resolve_source("s3://models/none")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (StoreError("503"), StoreUnavailable),
        (StoreFull("no space"), StoreFull),
        (StoreRefused("no such bucket"), ModelUnavailable),
        (BlobMissing("gone"), ModelUnavailable),
    ],
)
def test_a_store_that_is_away_is_not_taken_for_a_wrong_source(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: StoreError,
    told: type[Exception],
) -> None:
    shelf = DiskStore(tmp_path / "bucket")
    shelf.put("config.json", b"{}")

    def fails(key: str, path: Path) -> None:
        raise fault

    monkeypatch.setattr(shelf, "get_file", fails)
    monkeypatch.setattr("trainer.inputs.model.sources.open_store", lambda _: shelf)
    with pytest.raises(told, match=str(fault)):
        resolve_source("s3://models/qwen", tmp_path / "here")


class _Hub(BaseHTTPRequestHandler):
    """The part of the hub's protocol that bringing a model takes."""

    files: ClassVar[dict[str, bytes]] = {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "modeling_small.py": b"raise SystemExit",
    }
    asked: ClassVar[list[str]] = []
    refusals: ClassVar[dict[str, int]] = {"away": 503, "busy": 429, "none": 404, "mine": 403}
    """Models that are not to be had, and the status that says so."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        name = path.removeprefix(f"/lab/small/resolve/{REVISION}/")
        refused = next((s for m, s in self.refusals.items() if f"/lab/{m}/" in path), None)
        if refused is not None:
            self.send_error(refused)
        elif path == f"/api/models/lab/small/revision/{REVISION}":
            siblings = [{"rfilename": each} for each in self.files]
            self._send(
                json.dumps({"id": "lab/small", "sha": REVISION, "siblings": siblings}).encode(),
                with_body=with_body,
            )
        elif path == f"/api/models/lab/small/tree/{REVISION}":
            tree = [
                {"type": "file", "path": each, "oid": "0", "size": len(data)}
                for each, data in self.files.items()
            ]
            self._send(json.dumps(tree).encode(), with_body=with_body)
        elif name in self.files:
            self._send(self.files[name], with_body=with_body)
        else:
            self.send_error(404)

    def _send(self, data: bytes, *, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"')
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextmanager
def _hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _ask(program: str, endpoint: str, home: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's client reads its address when it is imported."""
    environment = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"from trainer.inputs.model.sources import resolve_source\n{program}",
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[4],
    )


def test_a_hub_model_is_brought_here_at_its_revision_without_its_code(tmp_path: Path) -> None:
    with _hub() as endpoint:
        done = _ask(f"print(resolve_source('hf:lab/small@{REVISION}'))", endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    directory = Path(done.stdout.strip())
    assert directory.name == REVISION
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "model.safetensors"]
    assert (directory / "model.safetensors").read_bytes() == b"weights"
    assert not any("modeling" in path for path in _Hub.asked)


_TELL = """
import time
time.sleep = lambda _: None  # the client waits for half a minute before it gives up
for model in {models}:
    try:
        resolve_source(f"hf:lab/{{model}}@{revision}")
    except Exception as fault:
        print(model, type(fault).__name__)
"""


def test_a_hub_that_is_away_is_not_taken_for_a_wrong_source(tmp_path: Path) -> None:
    program = _TELL.format(models=list(_Hub.refusals), revision=REVISION)
    with _hub() as endpoint:
        done = _ask(program, endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "away": "StoreUnavailable",
        "busy": "StoreUnavailable",
        "none": "ModelUnavailable",
        "mine": "ModelUnavailable",
    }


def test_a_hub_that_nobody_answers_for_is_away(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    program = _TELL.format(models=["small"], revision=REVISION)
    done = _ask(program, f"http://127.0.0.1:{port}", tmp_path)
    assert done.stdout.split() == ["small", "StoreUnavailable"], done.stderr
