"""What a launch brings that is secret, as files of this account alone while they are needed.

The name of a file says whose it is, so that another process of this machine can delete it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _usual_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"hillclimb-launches-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class Safekeeping:
    """Files under `folder`, which nobody else may enter."""

    folder: Path = field(default_factory=_usual_folder)

    def put(self, name: str, secrets: Mapping[str, str]) -> Path:
        """Write the secrets of the cluster `name` and return the file, in a folder of its own.

        Raises PermissionError where somebody else has made the folder.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{self.folder} is somebody else's: it must be deleted")
        self.folder.chmod(0o700)
        own = self.folder / name
        own.mkdir(mode=0o700, exist_ok=True)
        file = own / "given.json"
        fresh = os.open(
            file.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(fresh, "w") as out:
            json.dump(dict(secrets), out)
        file.with_suffix(".new").replace(file)
        return file

    def drop(self, name: str) -> None:
        """Delete what the cluster `name` was given, if it is there."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
