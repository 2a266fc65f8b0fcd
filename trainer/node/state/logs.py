"""The node's own log lines: to standard output, and into the trainer's log once it exists."""

from __future__ import annotations

import logging
import sys
from logging.handlers import MemoryHandler

from hillclimb.process.redactor import Redactor
from hillclimb.protocol.rundir import AttemptDir

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""The trainer's format."""
MAX_BUFFERED = 10_000


class RedactingFormatter(logging.Formatter):
    """Redacts secrets, also those that become known later."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self.redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with secrets redacted."""
        return self.redactor.text(super().format(record))


class NodeLogs:
    """Buffers lines until the trainer's log exists, whose segments go to the blob store."""

    def __init__(self, redactor: Redactor) -> None:
        self._formatter = RedactingFormatter(redactor)
        self._buffer = MemoryHandler(
            MAX_BUFFERED, flushLevel=logging.CRITICAL + 1, flushOnClose=False
        )
        stdout = logging.StreamHandler(sys.stdout)
        stdout.setFormatter(self._formatter)
        logging.basicConfig(level=logging.INFO, handlers=[stdout, self._buffer])
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def set_redactor(self, redactor: Redactor) -> None:
        """Redact with `redactor` from now on."""
        self._formatter.redactor = redactor

    def attach_log(self, attempt_dir: AttemptDir, redactor: Redactor) -> None:
        """Write buffered and later lines into the log of the attempt."""
        self.set_redactor(redactor)
        try:
            file = logging.FileHandler(attempt_dir.log)
        except OSError as error:
            logging.getLogger(__name__).warning("%s is not written: %s", attempt_dir.log, error)
            return
        file.setFormatter(self._formatter)
        root = logging.getLogger()
        root.addHandler(file)
        self._buffer.setTarget(file)
        self._buffer.flush()
        root.removeHandler(self._buffer)
