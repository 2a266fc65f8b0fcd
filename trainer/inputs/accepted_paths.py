"""The trainer's gate: experimental paths need the spec's flag, or evidence of these versions.

The service wrote the evidence into the spec. Only this process knows the machine's own versions,
so it compares them again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from hillclimb.process.code_revision import code_revision
from hillclimb.spec.preflight.accepted_paths import (
    GPU_SETTINGS,
    AcceptablePath,
    AcceptedPath,
    accepted_for,
    why_void,
)
from hillclimb.spec.rules.experimental_features import experimental_features, proof_of
from hillclimb.spec.run import RunSpec
from trainer.errors import SpecError

WANDB_URL, DEFAULT_WANDB_URL = "WANDB_BASE_URL", "https://api.wandb.ai"
DRIVER = Path("/sys/module/nvidia/version")
"""Where the kernel says the version of Nvidia's driver."""
_LIBRARIES: Mapping[AcceptablePath, tuple[str, ...]] = {
    **dict.fromkeys(GPU_SETTINGS, ("torch", "vllm")),
    "wandb": ("wandb",),
}
"""Libraries of the paths that a spec selects by a setting that no address belongs to."""


class Leave(Protocol):
    """Permission for experimental paths: a spec's flag, or its evidence."""

    @property
    def experimental(self) -> bool:
        """Allow all of them."""
        ...

    @property
    def accepted(self) -> tuple[AcceptedPath, ...]:
        """Allow these, under their versions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOf:
    """The leave of a spec whose other sections the caller does not have."""

    experimental: bool
    accepted: tuple[AcceptedPath, ...] = ()


def require_accepted(
    leave: Leave,
    path: AcceptablePath,
    *,
    subject: str | None,
    present: Mapping[str, str],
    never: str,
    instead: str,
) -> None:
    """Refuse an experimental path that neither the spec's flag nor its evidence allows.

    `never` says what was never run, `instead` is the last remedy.

    Raises:
        SpecError: there is no evidence, or a version that matters is another one.
    """
    if leave.experimental:
        return
    evidence = accepted_for(leave.accepted, path, subject)
    changes = [why_void(path, each.versions, present) for each in evidence]
    if None in changes:
        return
    void = f", and the evidence of it is void: {changes[0]}" if changes else ""
    raise SpecError(
        f"{never} (docs/verified.md){void}: set experimental to true to try it,{proof_of(path)} or"
        f" {instead}"
    )


def refuse_changed(spec: RunSpec, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse settings whose evidence was seen with other versions, or another W&B server.

    Raises:
        SpecError: as `require_accepted`.
    """
    for feature in experimental_features(spec):
        for path, libraries in _LIBRARIES.items():
            if path == feature.path:
                require_accepted(
                    spec,
                    path,
                    subject=wandb_url(environ) if path == "wandb" else None,
                    present=own_version() | library_versions(*libraries),
                    never=f"{feature.setting} was never run",
                    instead=feature.instead,
                )


def wandb_url(environ: Mapping[str, str]) -> str:
    """Return the address of the W&B server that `wandb` would use."""
    return environ.get(WANDB_URL) or DEFAULT_WANDB_URL


def own_version() -> dict[str, str]:
    """Return Hillclimb's version by its name."""
    return {"hillclimb": code_revision().package_version}


def library_versions(*names: str) -> dict[str, str]:
    """Return the versions of those libraries that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def gpu_versions() -> dict[str, str]:
    """Return name of the GPU, driver, CUDA and torch; without a GPU torch alone."""
    versions = own_version() | library_versions("torch")
    # A job that has not loaded torch, as a preview, uses no GPU.
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return versions
    versions |= {"gpu": torch.cuda.get_device_name(0), "cuda": str(torch.version.cuda)}
    with suppress(OSError):
        versions["driver"] = DRIVER.read_text().strip()
    return versions
