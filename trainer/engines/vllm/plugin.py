"""vLLM's entry point to us: it calls `register` in every process that it starts."""

from __future__ import annotations

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from trainer.engines.vllm.options import TRANSFER

_MODULE = "trainer.engines.vllm.transfer"


def register() -> None:
    """Make our weight transfer known; called more than once per process, as vLLM says."""
    if TRANSFER not in WeightTransferEngineFactory._registry:  # noqa: SLF001 - no public question
        WeightTransferEngineFactory.register_engine(TRANSFER, _MODULE, "FileTransfer")
