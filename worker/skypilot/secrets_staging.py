"""Stages the secrets of launches in private files, for as long as the upload needs them.

The folder has the cluster's name, so that another worker process can delete it.
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


def _default_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"hillclimb-launches-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class SecretsStaging:
    """Files under `folder`, which no other account may enter."""

    folder: Path = field(default_factory=_default_folder)

    def put(self, name: str, secrets: Mapping[str, str]) -> Path:
        """Write the secrets of the cluster `name` and return the file, in a folder of its own.

        Raises PermissionError where another account owns the folder.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Its name is predictable: another account may have made a folder or a link there first.
        status = self.folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{self.folder} belongs to another account: it must be deleted")
        self.folder.chmod(0o700)
        own = self.folder / name
        own.mkdir(mode=0o700, exist_ok=True)
        file = own / "secrets.json"
        fresh = os.open(
            file.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(fresh, "w") as out:
            json.dump(dict(secrets), out)
        file.with_suffix(".new").replace(file)
        return file

    def drop(self, name: str) -> None:
        """Delete the secrets of the cluster `name`, if staged."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
