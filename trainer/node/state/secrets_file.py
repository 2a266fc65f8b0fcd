"""What came with the launch and is secret: one file, read once and deleted.

SkyPilot hands variables on by command lines and in scripts that stay on the machines; a file it
copies. `worker/clusters/setup.py` says where it is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainer.node.errors import NodeMisconfigured

GIVEN = "HILLCLIMB_GIVEN"
"""Names the file: variables and their values, as JSON."""
_VARIABLES = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class Given:
    """The file's variables; it lies there until `forget`."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Given:
        """Return what the launch gave; nothing where none is named. Raises NodeMisconfigured."""
        named = environ.get(GIVEN)
        if not named:
            return cls()
        file = Path(named).expanduser()
        try:
            return cls(_VARIABLES.validate_json(file.read_bytes()), file)
        except FileNotFoundError as error:
            said = f"{file} is not there ({GIVEN} names it): another process has read it, and only"
            raise NodeMisconfigured(f"{said} a new launch brings it again") from error
        except (OSError, ValidationError) as error:
            # The error's own words would show what is in it.
            what = error.strerror if isinstance(error, OSError) else "it is no JSON of strings"
            raise NodeMisconfigured(f"{file} cannot be read: {what}") from None

    def forget(self) -> None:
        """Delete the file; the values stay in memory. Raises nothing: somebody else may have."""
        if self.file is not None:
            try:
                self.file.unlink(missing_ok=True)
            except OSError:
                return
