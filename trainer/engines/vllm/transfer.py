"""Weight transfer into vLLM: from a file, or straight from the learner's processes.

Runs inside vLLM's workers. A sync is `start_weight_update`, `update_weights` per file or chunk, and
`finish_weight_update`; in between the layers cannot run a forward pass.

Source: vLLM's native weight-transfer API (`vllm.distributed.weight_transfer`, 0.32), whose built-in
backends need GPUs.
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
from vllm.platforms import current_platform

from trainer.engines.vllm.logs import leave_out_computed_layers
from trainer.weights.broadcast import WeightBroadcastGroup
from trainer.weights.chunks import TensorShape, WeightChunk, num_values, split_chunk
from trainer.weights.digests import NOTHING, tensor_digests
from trainer.weights.ipc import open_ipc_handle


@dataclass
class FileInit(WeightTransferInitInfo):
    """No settings: a file needs no connection."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Path of the file with the new weights."""

    path: str = ""


@dataclass
class ChunkInit(WeightTransferInitInfo):
    """Address of the broadcast group; empty for transfer by IPC handles."""

    address: str = ""
    first: int = 0
    """Rank of the model's first process in the group."""
    size: int = 0
    """Processes in the group, the learner's included."""


@dataclass
class ChunkUpdate(WeightTransferUpdateInfo):
    """Shapes of a chunk's tensors (`TensorShape`), and how to get it."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    ipc_handle: str = ""
    """Base64; empty for a broadcast."""


_Init = TypeVar("_Init", bound=WeightTransferInitInfo)
_Update = TypeVar("_Update", bound=WeightTransferUpdateInfo)


class _LayerwiseTransfer(WeightTransferEngine[_Init, _Update], Generic[_Init, _Update]):  # type: ignore[misc, unused-ignore]
    """Loads tensors, layer by layer, into the layout of the kernels; digests what it loaded."""

    def start_weight_update(self) -> None:
        """Bring the layers back to the form in which weights are loaded."""
        leave_out_computed_layers()
        pack_experts_again(self.model)
        initialize_layerwise_reload(self.model)  # type: ignore[no-untyped-call, unused-ignore]
        self.digests: dict[str, str] = {}
        # `load_weights` returns these names, of the fused modules, for what it has written.
        self._not_loaded = {name for name, _ in self.model.named_parameters()}

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one update; the base class would also wait for an accelerator, which a CPU lacks."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def load(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """Load tensors under their Hugging Face names."""
        # Digest the tensors as they arrive: layers then fuse and repack them, and no digest would
        # equal the learner's.
        self.digests |= tensor_digests(weights)
        # Every vLLM model has this method, but the declared type is a plain module.
        load: Callable[..., set[str]] = getattr(self.model, "load_weights")  # noqa: B009
        self._not_loaded -= load(weights)

    def finish_weight_update(self) -> None:
        """Repack the layers for the kernels, and record the parameters that were not loaded."""
        finalize_layerwise_reload(self.model, self.model_config)  # type: ignore[no-untyped-call]
        self.digests |= dict.fromkeys(self._not_loaded, NOTHING)

    def shutdown(self) -> None:
        """Do nothing: the transfer has no resources."""


def pack_experts_again(model: torch.nn.Module) -> None:
    """Make a CPU build of vLLM pack experts at this reload too.

    vLLM 0.32 packs them for its kernel where a layer has no kernel yet, so at the first load only;
    later weights would be copied as they are into packed storage, and log-probs be off by 1 to 2
    without an error.
    """
    if not current_platform.is_cpu():
        return
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None  # type: ignore[union-attr]


class FileTransfer(_LayerwiseTransfer[FileInit, FileUpdate]):
    """Loads a safetensors file."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Do nothing: a file needs no connection."""

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load every tensor of the file."""
        self.load(list(load_file(update_info.path).items()))


class ChunkTransfer(_LayerwiseTransfer[ChunkInit, ChunkUpdate]):
    """Loads weight chunks by broadcast, or from the learner's memory by IPC handles."""

    init_info_cls = ChunkInit
    update_info_cls = ChunkUpdate
    _group: WeightBroadcastGroup | None = None

    def init_transfer_engine(self, init_info: ChunkInit) -> None:
        """Join the learner's broadcast group, if it broadcasts."""
        if init_info.address:
            rank = init_info.first + get_tensor_model_parallel_rank()
            self._group = WeightBroadcastGroup(init_info.address, rank, init_info.size, self.device)

    def receive_weights(self, update_info: ChunkUpdate) -> None:
        """Load the tensors of one chunk."""
        chunk = tuple(TensorShape(**tensor) for tensor in update_info.tensors)
        self.load(list(split_chunk(self._receive_flat(chunk, update_info.ipc_handle), chunk)))

    def _receive_flat(self, chunk: WeightChunk, ipc_handle: str) -> torch.Tensor:
        """Return the chunk's values, one tensor after the other, [num_values]."""
        if ipc_handle:
            return open_ipc_handle(base64.b64decode(ipc_handle))
        assert self._group is not None, "the broadcast group was not formed"
        dtype: torch.dtype = getattr(torch, chunk[0].dtype)
        flat = torch.empty(num_values(chunk), dtype=dtype, device=self.device)
        self._group.broadcast(flat)
        return flat


class WeightsExtension:
    """Methods of vLLM's workers that report their weights; added by `worker_extension_cls`."""

    weight_transfer_engine: _LayerwiseTransfer[Any, Any]
    model_runner: Any

    def loaded_weights(self) -> dict[str, str]:
        """Return the digests of the last update, with `NOTHING` for parameters that it left out."""
        return self.weight_transfer_engine.digests

    def loaded_adapter(self, directory: str, number: int) -> dict[str, str]:
        """Return the digests of the tensors in `directory` that adapter `number` has as well.

        vLLM multiplies the scale (alpha / rank) into the second factor, so tensors are compared
        and those of the file are digested.
        """
        tensors = load_file(Path(directory) / "adapter_model.safetensors")
        config = json.loads((Path(directory) / "adapter_config.json").read_text())
        scale = config["lora_alpha"] / config["r"]
        factors = dict(self._factors(number))
        return tensor_digests(
            (name, tensor)
            for name, tensor in tensors.items()
            if name in factors
            and _is_same(factors[name], tensor, scale if ".lora_B." in name else 1.0)
        )

    def _factors(self, number: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield vLLM's tensors of an adapter under peft's names, fused layers one by one."""
        manager = self.model_runner.lora_manager._adapter_manager  # noqa: SLF001 - no public way
        for module, layer in manager.get_adapter(number).loras.items():
            names = manager.packed_modules[module] if layer.is_packed else [module]
            both = (layer.lora_a, layer.lora_b)
            pairs = both if layer.is_packed else ([each] for each in both)
            for name, first, second in zip(names, *pairs, strict=True):
                if first is not None:
                    yield f"base_model.model.{name}.lora_A.weight", first
                    yield f"base_model.model.{name}.lora_B.weight", second


def _is_same(own: torch.Tensor, sent: torch.Tensor, scale: float) -> bool:
    """Tell whether `own` equals the tensor `sent` times `scale`, in vLLM's precision."""
    return torch.equal(own, sent.to(own) * scale)
