"""Keys of clouds from variables, as the files in which SkyPilot looks for them.

The names are those of the old workflows' secrets. As a command, `python -m
hillclimb.stack.system.cloud_keys` writes them into the home of SkyPilot's API server in compose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The file, below the home, from which a cloud's client reads its key, and its form."""

    path: str
    text: Callable[[str], str]


CLOUD_KEYS: Mapping[str, KeyFile] = {
    "LAMBDA_API_KEY": KeyFile(".lambda_cloud/lambda_keys", "api_key = {}\n".format),
    "RUNPOD_API_KEY": KeyFile(
        ".runpod/config.toml", lambda key: f"[default]\napi_key = {json.dumps(key)}\n"
    ),
    "VAST_API_KEY": KeyFile(".config/vastai/vast_api_key", "{}\n".format),
    "PRIME_INTELLECT_API_KEY": KeyFile(
        ".prime/config.json", lambda key: json.dumps({"api_key": key}) + "\n"
    ),
}


def cloud_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that are set, without blanks around them."""
    keys = {name: environment.get(name, "").strip() for name in CLOUD_KEYS}
    return {name: key for name, key in keys.items() if key}


def without_cloud_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a service inherits: SkyPilot reads files, and no other needs the keys."""
    return {name: value for name, value in environment.items() if name not in CLOUD_KEYS}


def write_cloud_keys(home: Path, keys: Mapping[str, str]) -> None:
    """Write the files, readable to their owner alone.

    A variable goes before a file: a folder that is a link to the operator's own home is replaced
    by one of this home, and nothing is written through the link.
    """
    for name, key in keys.items():
        file = home / CLOUD_KEYS[name].path
        if file.parent.is_symlink():
            file.parent.unlink()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(CLOUD_KEYS[name].text(key))


if __name__ == "__main__":
    write_cloud_keys(Path.home(), cloud_keys(os.environ))
