"""Imports the trainer's vLLM engine as on an H100, and asks vLLM's platform what it would use."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.trainer.engines.cuda.pretended import pretend_gpus


def main() -> None:
    """Print what was imported, and the attention kernels that vLLM would choose from."""
    pretend_gpus()
    stubs = [name for name, each in sys.modules.items() if type(each).__name__ == "_NoKernels"]
    from tests.trainer.fixtures.tiny import tiny_config  # noqa: PLC0415 - vLLM first
    from trainer.engines.vllm import builds, transfer  # noqa: PLC0415
    from trainer.engines.vllm.options import VllmOptions  # noqa: PLC0415

    options = VllmOptions(model_dir=sys.path[0], max_length=64, num_sessions=2)  # type: ignore[arg-type]
    found = {
        "stubs": stubs,
        "why_not": builds.why_not(tiny_config(), "float32"),
        "for_this_machine": builds.arguments_of_build(options),
        "transfers": [transfer.FileTransfer.__name__, transfer.ChunkTransfer.__name__],
        "kernels": {dtype: kernels(dtype) for dtype in ("auto", "fp8")},
    }
    sys.stdout.write(f"{json.dumps(found)}\n")


def kernels(cache_dtype: str) -> dict[str, Any]:
    """Names of attention kernels for Qwen3's heads, the first choice first, and why not others."""
    import torch  # noqa: PLC0415 - vLLM first
    from vllm.platforms import current_platform  # noqa: PLC0415
    from vllm.v1.attention.selector import AttentionSelectorConfig  # noqa: PLC0415

    asked = AttentionSelectorConfig(
        head_size=128,
        dtype=torch.bfloat16,
        kv_cache_dtype=cache_dtype,  # type: ignore[arg-type]
        block_size=None,
    )
    capability = current_platform.get_device_capability()
    usable, others = current_platform.get_valid_backends(capability, asked, num_heads=32)
    return {
        "usable": [each.backend.name for each in usable],
        "others": {backend.name: reasons for backend, (_, reasons) in others.items()},
    }


if __name__ == "__main__":
    main()
