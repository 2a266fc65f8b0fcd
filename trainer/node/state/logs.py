"""The node's own lines: to standard output, and into the trainer's log once there is one."""

from __future__ import annotations

import logging
import sys
from logging.handlers import MemoryHandler

from trainer.contract.rundir import AttemptDir
from trainer.handover.masking import Mask

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""As the trainer's lines."""
MANY = 10_000


class MaskedLines(logging.Formatter):
    """Leaves secrets out, also those that become known later."""

    def __init__(self, mask: Mask) -> None:
        super().__init__(FORMAT)
        self.mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without what is secret."""
        return self.mask.text(super().format(record))


class NodeLogs:
    """Keeps lines until there is a trainer's log, whose segments go to the blob store."""

    def __init__(self, mask: Mask) -> None:
        self._lines = MaskedLines(mask)
        self._kept = MemoryHandler(MANY, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        told = logging.StreamHandler(sys.stdout)
        told.setFormatter(self._lines)
        logging.basicConfig(level=logging.INFO, handlers=[told, self._kept])
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def know(self, mask: Mask) -> None:
        """Leave out from now on what `mask` knows."""
        self._lines.mask = mask

    def show(self, where: AttemptDir, mask: Mask) -> None:
        """Write what was kept, and what comes, into the log of the attempt."""
        self.know(mask)
        try:
            file = logging.FileHandler(where.log)
        except OSError as error:
            logging.getLogger(__name__).warning("%s is not written: %s", where.log, error)
            return
        file.setFormatter(self._lines)
        root = logging.getLogger()
        root.addHandler(file)
        self._kept.setTarget(file)
        self._kept.flush()
        root.removeHandler(self._kept)
