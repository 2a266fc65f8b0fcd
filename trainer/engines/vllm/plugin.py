"""vLLM plugin: vLLM calls `register` in every process that it starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess

from tqdm import tqdm
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.models.registry import ModelRegistry

from trainer.engines.vllm.options import CHUNK_TRANSFER, FILE_TRANSFER, TEXT_HALF
from trainer.engines.vllm.without_torchvision import import_image_processor

_MODULE = "trainer.engines.vllm.transfer"
_TEXT_HALVES = {
    "Qwen3_5ForCausalLM": "trainer.engines.vllm.text_half:Qwen35TextHalf",
    "Qwen3_5MoeForCausalLM": "trainer.engines.vllm.text_half:Qwen35MoeTextHalf",
}


def register() -> None:
    """Register our weight transfer, and make vLLM's processes exit with the one that started them.

    And, where the model is one, the text models of checkpoints of text and images. Progress bars
    get a lock that leaves no file. vLLM calls it more than once in a process, and in the trainer's
    own, which has no such parent.
    """
    if os.environ.get(TEXT_HALF):
        import_image_processor()
        for architecture, own in _TEXT_HALVES.items():
            ModelRegistry.register_model(architecture, own)
    if FILE_TRANSFER in WeightTransferEngineFactory._registry:  # noqa: SLF001 - no public way to look it up
        return
    # tqdm's own lock is a named semaphore, whose file a process leaves behind that is killed.
    tqdm.set_lock(threading.RLock())
    WeightTransferEngineFactory.register_engine(FILE_TRANSFER, _MODULE, "FileTransfer")
    WeightTransferEngineFactory.register_engine(CHUNK_TRANSFER, _MODULE, "ChunkTransfer")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    """Exit when the parent exits: a killed one notifies nobody, and vLLM would run for ever."""
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
