"""How vLLM takes new weights: from a safetensors file on a disk or in shared memory.

Runs inside vLLM's workers. Source: vLLM's native weight-transfer API
(`vllm.distributed.weight_transfer`, 0.32), whose built-in backends need GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing has to be agreed on before the first transfer."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Which file holds the new weights."""

    path: str = ""


class FileTransfer(WeightTransferEngine[FileInit, FileUpdate]):  # type: ignore[misc, unused-ignore]
    """Loads every tensor of the file, layer by layer, into the layout the kernels want."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Prepare nothing."""

    def start_weight_update(self) -> None:
        """Bring the layers back to the form in which weights are loaded."""
        initialize_layerwise_reload(self.model)  # type: ignore[no-untyped-call, unused-ignore]

    def update_weights(self, update_info: dict[str, str]) -> None:
        """Load a file; the base class would also wait for an accelerator, which a CPU lacks."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load the tensors under their Hugging Face names."""
        # Every vLLM model has it; its type is that of a plain module.
        load: Callable[..., object] = getattr(self.model, "load_weights")  # noqa: B009
        load(list(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        """Pack the layers for the kernels again."""
        finalize_layerwise_reload(self.model, self.model_config)  # type: ignore[no-untyped-call]

    def shutdown(self) -> None:
        """Hold nothing back."""
