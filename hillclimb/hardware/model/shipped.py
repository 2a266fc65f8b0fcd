"""The models shipped with Hillclimb, which `model.source: builtin:NAME` names."""

from __future__ import annotations

import difflib
import os
from functools import cache
from pathlib import Path

ASSETS_VARIABLE = "HILLCLIMB_ASSETS_DIR"
"""Environment variable with the directory of the models shipped with Hillclimb; the service and the
trainers need the same."""
BUILTIN = "builtin:"
_PACKED = "hillclimb_assets"
"""Name of `assets/` beside the packages of a wheel, where it must be unique to us."""


def assets_dir() -> Path:
    """Return the directory of the shipped models.

    `HILLCLIMB_ASSETS_DIR`, else that of the wheel we are installed from, else `assets/` of the
    checkout.
    """
    if override := os.environ.get(ASSETS_VARIABLE):
        return Path(override)
    root = Path(__file__).resolve().parents[3]
    packed = root / _PACKED
    return packed if packed.is_dir() else root / "assets"


def shipped_models() -> list[str]:
    """Return the names of the shipped models."""
    return sorted(path.parent.name for path in assets_dir().glob("*/config.json"))


@cache
def _known_before(_assets: Path) -> frozenset[str]:
    """Return the shipped models of the first look: to list a folder took 60 us of a submission."""
    return frozenset(shipped_models())


def why_not_shipped(source: str) -> str | None:
    """Return why a `model.source` names no shipped model, as a sentence; None if it names one.

    None also for any other source, and where this machine has no models to compare with.
    """
    name = source.removeprefix(BUILTIN)
    if name == source or name in _known_before(assets_dir()):
        return None
    known = shipped_models()
    if name in known or not known:
        return None
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    return f"no model {name!r} is shipped with Hillclimb; {hint}"
