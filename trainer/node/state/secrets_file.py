"""The launch's secrets: one file, read once and deleted.

SkyPilot passes variables in command lines and in scripts that stay on the machines, but copies
files. `worker/skypilot/node_setup.py` sets the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainer.node.errors import NodeMisconfigured

PATH_VARIABLE = "HILLCLIMB_SECRETS_FILE"
"""Variable with the file's path; the file has variables and their values, as JSON."""
_VARIABLES = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class SecretsFile:
    """The variables of the file, which exists until `delete`."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> SecretsFile:
        """Read the file; empty where the variable is not set. Raises NodeMisconfigured."""
        path = environ.get(PATH_VARIABLE)
        if not path:
            return cls()
        file = Path(path).expanduser()
        try:
            return cls(_VARIABLES.validate_json(file.read_bytes()), file)
        except FileNotFoundError as error:
            raise NodeMisconfigured(
                f"{file} ({PATH_VARIABLE}) does not exist: another process has read and deleted it,"
                " and only a new launch brings it again"
            ) from error
        except (OSError, ValidationError) as error:
            # The error's own message would quote the file's content.
            reason = error.strerror if isinstance(error, OSError) else "it is no JSON of strings"
            raise NodeMisconfigured(f"{file} cannot be read: {reason}") from None

    def delete(self) -> None:
        """Delete the file; the values stay in memory. Never raises: it may be deleted already."""
        if self.file is not None:
            try:
                self.file.unlink(missing_ok=True)
            except OSError:
                return
