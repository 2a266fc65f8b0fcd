"""Of an archive that a server gives, two files are taken, whatever it names."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from trainer.stores.base import StoreError
from trainer.tinker.saved import bring_adapter, place_of

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def archive(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return whole.getvalue()


@contextmanager
def served(content: bytes) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.extend(name.lower() for name in self.headers)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/x", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_the_adapter_is_taken_and_nothing_else(tmp_path: Path, mode: str) -> None:
    files = {f"deep/{CONFIG}": b"{}", f"../../{WEIGHTS}": b"weights", "../evil": b"x"}
    target = tmp_path / "here" / "adapter"
    with served(archive(files, mode)) as (url, asked):
        bring_adapter(url, target, timeout_s=10.0)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        CONFIG: b"{}",
        WEIGHTS: b"weights",
    }
    assert [path.name for path in tmp_path.rglob("*") if path.name in ("evil", "link")] == []
    assert "x-api-key" not in asked


@pytest.mark.parametrize(
    "content", [archive({CONFIG: b"{}"}), b"no archive at all", b""], ids=["torn", "text", "empty"]
)
def test_what_is_no_adapter_is_said_and_leaves_nothing_half(tmp_path: Path, content: bytes) -> None:
    with (
        served(content) as (url, _),
        pytest.raises(StoreError, match="the adapter could not be copied from the Tinker server"),
    ):
        bring_adapter(url, tmp_path, timeout_s=10.0)
    assert not (tmp_path / "archive.part").exists()


def test_the_archive_is_asked_for_by_run_and_checkpoint_of_either_form() -> None:
    assert place_of("tinker://model_1/step-3") == ("model_1", "step-3")
    assert place_of("tinker://s:train:0/sampler_weights/a") == ("s:train:0", "sampler_weights/a")
