"""Whole specs of runs that were made before, to start from: `hillclimb presets`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).resolve().parent


ALIASES: Mapping[str, str] = {
    "openenv-fleet-grpo-qwen3-8b": "qwen3-8b",
    "openenv-fleet-grpo-qwen3-8b-8gpu": "qwen3-8b-8xh100",
    # Without SkyRL's context tools its gradient is that of whole rollouts, which cost less.
    "openenv-fleet-grpo-qwen3-8b-step-wise": "qwen3-8b",
    "openenv-fleet-grpo-qwen3-32b": "qwen3-32b",
}
"""Presets by the names of SkyRL's task files that they were made after."""


class NoSuchPreset(Exception):
    """No preset has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A spec by name."""

    name: str
    about: str
    """What it is for, in one or two sentences."""
    text: str
    """The YAML, comments included."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The old names by which it is found too."""
        return tuple(old for old, name in ALIASES.items() if name == self.name)

    @property
    def spec(self) -> dict[str, Any]:
        """The spec as JSON values, a new copy each time."""
        spec: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(self.text)))
        return spec


@lru_cache
def presets() -> dict[str, Preset]:
    """Return all presets by name, in the order of their names."""
    paths = sorted(_FOLDER.glob("*.yaml"), key=lambda path: path.stem)
    return {path.stem: _read(path) for path in paths}


def preset(name: str) -> Preset:
    """Return one preset, also by the old name of its task file.

    Raises:
        NoSuchPreset: no preset has that name.
    """
    match = presets().get(ALIASES.get(name, name))
    if match is None:
        raise NoSuchPreset(
            f"there is no preset {name!r}: take one of {', '.join(presets())}"
            f" (or by a task file's old name: {', '.join(ALIASES)})"
        )
    return match


def _read(path: Path) -> Preset:
    """Read a preset; the comment at the head of its file describes its purpose."""
    text = path.read_text()
    head = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return Preset(name=path.stem, about=" ".join(line.lstrip("# ") for line in head), text=text)
