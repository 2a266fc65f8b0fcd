"""vLLM's entry point to us: it calls `register` in every process that it starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from trainer.engines.vllm.options import PIECES, TRANSFER

_MODULE = "trainer.engines.vllm.transfer"


def register() -> None:
    """Make our weight transfer known, and let vLLM's processes end with the one that made them.

    vLLM calls it more than once in a process, and in the trainer's own, which has no such parent.
    """
    if TRANSFER in WeightTransferEngineFactory._registry:  # noqa: SLF001 - no public question
        return
    WeightTransferEngineFactory.register_engine(TRANSFER, _MODULE, "FileTransfer")
    WeightTransferEngineFactory.register_engine(PIECES, _MODULE, "PieceTransfer")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """Wait for the parent's end: one that was killed tells nobody, and vLLM would stay for ever."""
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
