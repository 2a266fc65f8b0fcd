"""Of an archive that a server gives, two files are taken, whatever it names."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import save

from hillclimb.blobs.base import StoreError
from hillclimb.process.network.addresses import NO_HOSTS, OWN_MACHINE_HOSTS
from trainer.workers.tinker.saved import (
    checkpoint_of,
    download_adapter,
    is_of_run,
    place_of,
    state_name,
)

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LAYER = "base_model.model.model.layers.0"
FACTORS = save(
    {
        f"{LAYER}.{layer}.lora_{factor}.weight": torch.ones(2, 2)
        for layer in ("self_attn.q_proj", "mlp.up_proj")
        for factor in "AB"
    }
)
COMPLETE = {"target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}


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
    config = json.dumps(COMPLETE).encode()
    files = {f"deep/{CONFIG}": config, f"../../{WEIGHTS}": FACTORS, "../evil": b"x"}
    target = tmp_path / "here" / "adapter"
    with served(archive(files, mode)) as (url, asked):
        download_adapter(url, target, timeout_s=10.0, allowed=OWN_MACHINE_HOSTS)
    assert {path.name for path in target.iterdir()} == {CONFIG, WEIGHTS}
    assert (target / WEIGHTS).read_bytes() == FACTORS
    assert json.loads((target / CONFIG).read_bytes()) == COMPLETE
    assert [path.name for path in tmp_path.rglob("*") if path.name in ("evil", "link")] == []
    assert "x-api-key" not in asked


@pytest.mark.parametrize("said", [{}, {"target_modules": None, "task_type": None}])
def test_the_layers_that_a_server_does_not_name_are_read_off_the_weights(
    tmp_path: Path, said: dict[str, None]
) -> None:
    files = {CONFIG: json.dumps({"r": 2, **said}).encode(), WEIGHTS: FACTORS}
    with served(archive(files)) as (url, _):
        download_adapter(url, tmp_path, timeout_s=10.0, allowed=OWN_MACHINE_HOSTS)
    assert json.loads((tmp_path / CONFIG).read_bytes()) == {
        "r": 2,
        "target_modules": ["q_proj", "up_proj"],
        "task_type": "CAUSAL_LM",
    }


NO_ADAPTERS = {
    "torn": archive({CONFIG: b"{}"}),
    "no weights": archive({CONFIG: b"{}", WEIGHTS: b"weights"}),
    "whole weights": archive({CONFIG: b"{}", WEIGHTS: save({"lm_head.weight": torch.ones(1)})}),
    "no config": archive({CONFIG: b"[", WEIGHTS: FACTORS}),
    "text": b"no archive at all",
    "empty": b"",
}


@pytest.mark.parametrize("content", NO_ADAPTERS.values(), ids=NO_ADAPTERS)
def test_what_is_no_adapter_is_said_and_leaves_nothing_half(tmp_path: Path, content: bytes) -> None:
    with (
        served(content) as (url, _),
        pytest.raises(StoreError, match="the adapter could not be copied from the Tinker server"),
    ):
        download_adapter(url, tmp_path, timeout_s=10.0, allowed=OWN_MACHINE_HOSTS)
    assert not (tmp_path / "archive.part").exists()


@pytest.mark.parametrize("padding", [b"\0" * 200_000, bytes(range(256)) * 200])
def test_an_archive_above_the_limit_is_refused_sent_or_unpacked(
    tmp_path: Path, padding: bytes
) -> None:
    """The first one is small as it is sent."""
    files = {"padding": padding, CONFIG: json.dumps(COMPLETE).encode(), WEIGHTS: FACTORS}
    mode = "w:gz" if padding[1] == 0 else "w"
    with served(archive(files, mode)) as (url, _):
        with pytest.raises(StoreError, match="more than 40,000 bytes"):
            download_adapter(
                url, tmp_path, timeout_s=10.0, allowed=OWN_MACHINE_HOSTS, max_bytes=40_000
            )
        assert list(tmp_path.iterdir()) == []
        download_adapter(url, tmp_path, timeout_s=10.0, allowed=OWN_MACHINE_HOSTS)


def test_an_archive_at_an_inner_host_is_not_fetched(tmp_path: Path) -> None:
    """The address is the server's choice."""
    with (
        served(archive({CONFIG: b"{}", WEIGHTS: FACTORS})) as (url, asked),
        pytest.raises(StoreError, match=r"127\.0\.0\.1 has an address that is not public"),
    ):
        download_adapter(url, tmp_path, timeout_s=10.0, allowed=NO_HOSTS)
    assert not asked


def test_the_archive_is_asked_for_by_run_and_checkpoint_of_either_form() -> None:
    assert place_of("tinker://model_1/step-3") == ("model_1", "step-3")
    assert place_of("tinker://s:train:0/sampler_weights/a") == ("s:train:0", "sampler_weights/a")


def test_a_state_of_another_run_is_not_taken_for_ones_own() -> None:
    own = "tinker://s:train:0/weights/run_1-a2-step000004-1"
    assert is_of_run(own, "run_1")
    assert is_of_run("tinker://model_1/run_1-a2-step000004-1", "run_1")
    assert not is_of_run(own, "run_11")
    assert not is_of_run("tinker://s:train:0/weights/run_11-a2-step000004-1", "run_1")


def test_a_state_says_which_checkpoint_it_was_saved_for() -> None:
    name = state_name("run_1-a2", 4, 1)
    for path in (f"tinker://s:train:0/weights/{name}", f"tinker://model_1/{name}"):
        assert checkpoint_of(path) == "checkpoints/global_step_4/attempt-2"
    assert checkpoint_of("tinker://model_1/somebody-else's") is None
