"""How vLLM takes new weights: from a file, or straight from the learner's processes.

Runs inside vLLM's workers. Source: vLLM's native weight-transfer API
(`vllm.distributed.weight_transfer`, 0.32), whose built-in backends need GPUs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import load_file
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from trainer.engines.vllm.logs import leave_out_computed_layers
from trainer.weights.channel import Channel
from trainer.weights.lending import borrowed


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing has to be agreed on before the first transfer."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Which file holds the new weights."""

    path: str = ""


@dataclass
class PieceInit(WeightTransferInitInfo):
    """Where to meet the learner; empty where its memory is lent."""

    address: str = ""
    first: int = 0
    size: int = 0


@dataclass
class PieceUpdate(WeightTransferUpdateInfo):
    """What comes (`TensorShape`), and, base64, what was lent; empty for a broadcast."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    lent: str = ""


_Init = TypeVar("_Init", bound=WeightTransferInitInfo)
_Update = TypeVar("_Update", bound=WeightTransferUpdateInfo)


class _Loading(WeightTransferEngine[_Init, _Update], Generic[_Init, _Update]):  # type: ignore[misc, unused-ignore]
    """Loads tensors, layer by layer, into the layout that the kernels want."""

    def start_weight_update(self) -> None:
        """Bring the layers back to the form in which weights are loaded."""
        leave_out_computed_layers()
        initialize_layerwise_reload(self.model)  # type: ignore[no-untyped-call, unused-ignore]

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load; the base class would also wait for an accelerator, which a CPU lacks."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def load(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """Load tensors under their Hugging Face names."""
        # Every vLLM model has it; its type is that of a plain module.
        load: Callable[..., object] = getattr(self.model, "load_weights")  # noqa: B009
        load(weights)

    def finish_weight_update(self) -> None:
        """Pack the layers for the kernels again."""
        finalize_layerwise_reload(self.model, self.model_config)  # type: ignore[no-untyped-call]

    def shutdown(self) -> None:
        """Hold nothing back."""


class FileTransfer(_Loading[FileInit, FileUpdate]):
    """Takes a safetensors file."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Prepare nothing."""

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load every tensor of the file."""
        self.load(list(load_file(update_info.path).items()))


class PieceTransfer(_Loading[PieceInit, PieceUpdate]):
    """Takes pieces of the model by broadcast, or out of the learner's memory."""

    init_info_cls = PieceInit
    update_info_cls = PieceUpdate
    _channel: Channel | None = None

    def init_transfer_engine(self, init_info: PieceInit) -> None:
        """Meet the learner, if it broadcasts."""
        if init_info.address:
            number = init_info.first + get_tensor_model_parallel_rank()
            self._channel = Channel(init_info.address, number, init_info.size, self.device)

    def receive_weights(self, update_info: PieceUpdate) -> None:
        """Load the tensors of one piece."""
        self.load(list(_cut(self._whole(update_info), update_info.tensors)))

    def _whole(self, update: PieceUpdate) -> torch.Tensor:
        if update.lent:
            return borrowed(base64.b64decode(update.lent))
        assert self._channel is not None, "the processes have not met"
        numel = sum(prod(tensor["shape"]) for tensor in update.tensors)
        dtype: torch.dtype = getattr(torch, update.tensors[0]["dtype"])
        whole = torch.empty(numel, dtype=dtype, device=self.device)
        self._channel.broadcast(whole)
        return whole


def _cut(whole: torch.Tensor, tensors: list[dict[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    sizes = [prod(tensor["shape"]) for tensor in tensors]
    for tensor, part in zip(tensors, torch.split(whole, sizes), strict=True):
        yield tensor["name"], part.view(tensor["shape"])
