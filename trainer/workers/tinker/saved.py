"""Checkpoint of the tinker backend: the path of the server's state, and a copy of the adapter.

Training resumes from the server's state; the adapter is our copy for when that is lost.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

from hillclimb.blobs.base import StoreError
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.process.network.connections import BlockingTransport
from hillclimb.protocol.rundir import checkpoint_name
from trainer.errors import CheckpointError

STATE_FILE = "learner/tinker.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_SCHEME = "tinker://"
_NAME = re.compile(r"^(?P<run>.+)-a(?P<attempt>\d+)-step(?P<step>\d+)-\d+$")
_CHUNK = 1 << 20
MAX_ARCHIVE_BYTES = 16 * 2**30
"""Of an archive as sent, and again of all that it unpacks to: the disk is the run's, and what a
server sends is the server's choice."""


class SavedState(BaseModel):
    """`learner/tinker.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_path: str = Field(pattern=r"^tinker://[^\s]+$")
    """The server's name of weights and optimizer."""
    base_model: str
    lora_rank: int = Field(ge=1)
    version: int = Field(ge=0)
    """Version of the weights: training steps so far."""
    num_updates: int = Field(ge=0)
    """Optimizer steps, for the learning rate."""
    stored_paths: tuple[str, ...] = ()
    """Paths of the server's states for the run's checkpoints, the oldest first: an attempt that
    resumes from here deletes those whose checkpoints were deleted."""


def write_state(directory: Path, state: SavedState) -> None:
    """Write the file that `read_state` reads. Raises OSError."""
    path = directory / STATE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(state.model_dump_json(indent=1))


def read_state(directory: Path) -> SavedState:
    """Read what `write_state` wrote.

    Raises:
        CheckpointError: the checkpoint is of another backend, or unreadable.
    """
    try:
        return SavedState.model_validate_json((directory / STATE_FILE).read_bytes())
    except FileNotFoundError as missing:
        raise CheckpointError(
            "the checkpoint was not saved by the backend tinker, and weights cannot be loaded into"
            " a Tinker server: resume with the backend that saved it"
        ) from missing
    except (OSError, ValidationError) as fault:
        raise CheckpointError(f"{STATE_FILE} of the checkpoint cannot be read: {fault}") from fault


def place_of(tinker_path: str) -> tuple[str, str]:
    """Return run and checkpoint that a `tinker://RUN/CHECKPOINT` names to the archive's route.

    The SDK's own parser wants `sampler_weights/` in it, which not every server puts there.
    """
    run_id, _, checkpoint = tinker_path.removeprefix(_SCHEME).partition("/")
    return run_id, checkpoint


def state_name(attempt_name: str, step: int, number: int) -> str:
    """Return the name of a state on the server: `RUN-aATTEMPT-stepSTEP-NUMBER`."""
    return f"{attempt_name}-step{step:06d}-{number}"


def is_of_run(tinker_path: str, run_id: str) -> bool:
    """Tell whether a state is of an attempt of this run; another run's are not ours to delete."""
    name = _name_of(tinker_path)
    return name is not None and name["run"] == run_id


def checkpoint_of(tinker_path: str) -> str | None:
    """Return the path in the run of the checkpoint that a state was saved for."""
    name = _name_of(tinker_path)
    return name and checkpoint_name(int(name["step"]), int(name["attempt"]))


def _name_of(tinker_path: str) -> re.Match[str] | None:
    _, checkpoint = place_of(tinker_path)
    return _NAME.match(checkpoint.rpartition("/")[2])


def download_adapter(
    url: str,
    directory: Path,
    *,
    timeout_s: float,
    allowed: AllowedHosts,
    max_bytes: int = MAX_ARCHIVE_BYTES,
) -> None:
    """Download an archive and put the adapter's two files into `directory`.

    The address carries its own permission; the key is not sent along. It is the server's choice, as
    is where it redirects to: every connection is checked.

    Raises:
        StoreError: it cannot be had, is not the archive of an adapter, or has over `max_bytes`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / "archive.part"
    try:
        with (
            httpx.Client(
                transport=BlockingTransport(allowed, url), timeout=timeout_s, follow_redirects=True
            ) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            with archive.open("wb") as handle:
                for chunk in response.iter_bytes(_CHUNK):
                    _refuse_above(max_bytes, handle.tell() + len(chunk))
                    handle.write(chunk)
        _extract(archive, directory, max_bytes)
        _complete(directory)
    except (httpx.HTTPError, tarfile.TarError, SafetensorError, KeyError, ValueError) as fault:
        raise StoreError(
            f"the adapter could not be copied from the Tinker server: {fault}"
        ) from fault
    finally:
        archive.unlink(missing_ok=True)


def _complete(directory: Path) -> None:
    """Name the adapted layers in the config, where the server did not (SkyRL 0.3.0).

    Without them peft takes a guess by the kind of model and leaves the other layers out.
    """
    config_file, weights_file = (directory / name for name in ADAPTER_FILES)
    config = json.loads(config_file.read_bytes())
    with safe_open(weights_file, framework="numpy") as weights:
        names = list(weights.keys())
    layers = {name.split(".")[-3] for name in names if name.endswith(".lora_A.weight")}
    if not layers:
        raise KeyError("lora_A.weight")
    config["target_modules"] = config.get("target_modules") or sorted(layers)
    config["task_type"] = config.get("task_type") or "CAUSAL_LM"
    config_file.write_text(json.dumps(config, indent=2))


def _refuse_above(max_bytes: int, num_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise ValueError(f"the archive has more than {max_bytes:,} bytes")


def _extract(archive: Path, directory: Path, max_bytes: int) -> None:
    """Extract the two files only, by their names: other paths of an archive are not trusted."""
    with tarfile.open(archive, "r:*") as tar:
        members = {}
        for each in tar:
            # Before what it announces is unpacked to get at the next one.
            _refuse_above(max_bytes, each.offset_data + each.size)
            if each.isfile():
                members[Path(each.name).name] = each
        for name in ADAPTER_FILES:
            source = tar.extractfile(members[name])
            if source is None:
                raise KeyError(name)
            with source, (directory / name).open("wb") as target:
                shutil.copyfileobj(source, target)
