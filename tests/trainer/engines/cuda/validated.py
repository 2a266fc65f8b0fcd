"""Prints what vLLM makes of engine arguments on eight H100, one line of JSON for each line of them.

A program of its own: vLLM decides once per process where it runs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.trainer.engines.cuda.pretended import pretend_gpus


def main() -> None:
    """Read objects `{"arguments": {...}}`; print the decisions, or the refusal."""
    pretend_gpus()
    from trainer.engines.vllm import plugin  # noqa: PLC0415 - once vLLM knows where it is

    plugin.register()
    for line in sys.stdin:
        try:
            found = decided(json.loads(line))
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as refusal:
            found = {"refused": f"{type(refusal).__name__}: {refusal}"}
        sys.stdout.write(f"RESULT {json.dumps(found)}\n")
        sys.stdout.flush()


def decided(arguments: dict[str, Any]) -> dict[str, Any]:
    """Let vLLM validate the arguments; return what it decided."""
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - as above
    from vllm.usage.usage_lib import UsageContext  # noqa: PLC0415

    made = AsyncEngineArgs(**arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    model, scheduler = made.model_config, made.scheduler_config
    return {
        "architecture": model.architecture,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "rope": model.hf_config.rope_parameters,
        "logprobs_mode": model.logprobs_mode,
        "cache_dtype": made.cache_config.cache_dtype,
        "block_size": made.cache_config.block_size,
        "shares_prefixes": made.cache_config.enable_prefix_caching,
        "is_v2": made.use_v2_model_runner,
        "is_asynchronous": scheduler.async_scheduling,
        "computes_prompts_in_parts": scheduler.enable_chunked_prefill,
        "batched_tokens": scheduler.max_num_batched_tokens,
        "num_seqs": scheduler.max_num_seqs,
        "compilation": made.compilation_config.mode.name,
        "graphs": made.compilation_config.cudagraph_mode.name,
        "largest_graph": made.compilation_config.max_cudagraph_capture_size,
        "tensor_parallel_size": made.parallel_config.tensor_parallel_size,
        "executor": str(made.parallel_config.distributed_executor_backend),
        "worker": made.parallel_config.worker_cls,
        "lora_rank": made.lora_config.max_lora_rank if made.lora_config else None,
        "transfer": made.weight_transfer_config.backend,
    }


if __name__ == "__main__":
    main()
