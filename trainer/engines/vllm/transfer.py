"""How vLLM takes new weights: from a file, or straight from the learner's processes.

Runs inside vLLM's workers. Source: vLLM's native weight-transfer API
(`vllm.distributed.weight_transfer`, 0.32), whose built-in backends need GPUs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
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
from trainer.weights.manifest import NOTHING, marks
from trainer.weights.pieces import Piece, TensorShape, cut, num_values


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
        self.taken: dict[str, str] = {}
        self._not_loaded = {name for name, _ in self.model.named_parameters()}

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load; the base class would also wait for an accelerator, which a CPU lacks."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def load(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """Load tensors under their Hugging Face names."""
        self.taken |= marks(weights)
        # Every vLLM model has it; its type is that of a plain module.
        load: Callable[..., set[str]] = getattr(self.model, "load_weights")  # noqa: B009
        self._not_loaded -= load(weights)

    def finish_weight_update(self) -> None:
        """Pack the layers for the kernels again."""
        finalize_layerwise_reload(self.model, self.model_config)  # type: ignore[no-untyped-call]
        self.taken |= dict.fromkeys(self._not_loaded, NOTHING)

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
        piece = tuple(TensorShape(**tensor) for tensor in update_info.tensors)
        self.load(list(cut(self._whole(piece, update_info.lent), piece)))

    def _whole(self, piece: Piece, lent: str) -> torch.Tensor:
        if lent:
            return borrowed(base64.b64decode(lent))
        assert self._channel is not None, "the processes have not met"
        dtype: torch.dtype = getattr(torch, piece[0].dtype)
        whole = torch.empty(num_values(piece), dtype=dtype, device=self.device)
        self._channel.broadcast(whole)
        return whole


class Holding:
    """What vLLM's workers can say of their weights; `worker_extension_cls` adds it to them."""

    weight_transfer_engine: _Loading[Any, Any]
    model_runner: Any

    def taken_weights(self) -> dict[str, str]:
        """Return the marks of what the last update loaded, and what it loaded nothing into."""
        return self.weight_transfer_engine.taken

    def taken_adapter(self, directory: str, number: int) -> dict[str, str]:
        """Return the marks of the tensors in `directory` that are those of adapter `number`."""
        sent = load_file(Path(directory) / "adapter_model.safetensors")
        config = json.loads((Path(directory) / "adapter_config.json").read_text())
        scale = config["lora_alpha"] / config["r"]
        held = dict(self._factors(number))
        return marks(
            (name, tensor)
            for name, tensor in sent.items()
            if name in held and _is_same(held[name], tensor, scale if ".lora_B." in name else 1.0)
        )

    def _factors(self, number: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what vLLM has of an adapter, under peft's names; layers it fuses, one by one."""
        manager = self.model_runner.lora_manager._adapter_manager  # noqa: SLF001 - nobody tells
        for module, layer in manager.get_adapter(number).loras.items():
            names = manager.packed_modules[module] if layer.is_packed else [module]
            both = (layer.lora_a, layer.lora_b)
            pairs = both if layer.is_packed else ([each] for each in both)
            for name, first, second in zip(names, *pairs, strict=True):
                if first is not None:
                    yield f"base_model.model.{name}.lora_A.weight", first
                    yield f"base_model.model.{name}.lora_B.weight", second


def _is_same(held: torch.Tensor, sent: torch.Tensor, scale: float) -> bool:
    """Tell whether `held` is what was sent, in vLLM's precision and with the scale worked in."""
    return torch.equal(held, sent.to(held) * scale)
