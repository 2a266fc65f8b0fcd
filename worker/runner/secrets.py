"""The secrets of a runner's attempts, on its disk until they have ended and are swept.

A restarted runner needs them for a trainer that it adopts: to redact the rest of its log, and to
delete what the trainer left on a platform.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

log = logging.getLogger(__name__)
_VARIABLES = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class AttemptSecrets:
    """One file (mode 0600) per attempt that has secrets, in a folder of mode 0700."""

    folder: Path

    def put(self, attempt_id: str, secrets: Mapping[str, str]) -> None:
        """Store the variables of an attempt; none stores nothing. Raises OSError."""
        if not secrets:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(self._file(attempt_id), flags, 0o600), "wb") as out:
            out.write(_VARIABLES.dump_json(dict(secrets)))
            out.flush()
            os.fsync(out.fileno())

    def get(self, attempt_id: str) -> dict[str, str]:
        """Return the variables of an attempt; empty where it has none, or they are not readable."""
        try:
            return _VARIABLES.validate_json(self._file(attempt_id).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError):
            # The error's own message would quote the file's content.
            log.warning("the secrets of attempt %s are not readable", attempt_id)
            return {}

    def remove(self, attempt_id: str) -> None:
        """Delete the variables of an attempt that has ended."""
        try:
            self._file(attempt_id).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the secrets of attempt %s are not deleted: %s", attempt_id, error.strerror)

    def _file(self, attempt_id: str) -> Path:
        return self.folder / f"{attempt_id}.json"
