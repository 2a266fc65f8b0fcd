"""Specs that rent machines, to build tests from."""

from __future__ import annotations

from typing import Any

from hillclimb.spec.backend.skypilot import CandidateSpec
from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec

YARN = {"factor": 2.0, "original_max_position_embeddings": 32_768}
QWEN3_8B = "hf:Qwen/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218"


def candidate(accelerators: str | None = "H100:8", **values: Any) -> CandidateSpec:
    body = {"infra": "lambda", "accelerators": accelerators} | values
    return CandidateSpec.model_validate(body)


def rented(*candidates: dict[str, Any], num_nodes: int = 1, **sections: Any) -> RunSpec:
    """A spec for these machines; by default one node of eight H100."""
    machines = candidates or ({"infra": "lambda", "accelerators": "H100:8"},)
    skypilot = {"candidates": list(machines), "num_nodes": num_nodes}
    backend = {"type": "skypilot", "skypilot": skypilot}
    return make_spec(**({"backend": backend, "experimental": True} | sections))


def qwen3_8b(*candidates: dict[str, Any], length: int = 65_536, **sections: Any) -> RunSpec:
    """Qwen3-8B, all of it trained in bfloat16, engines and ranks on GPUs of their own."""
    body: dict[str, Any] = {
        "model": {"source": QWEN3_8B, "rope": YARN},
        "environment": {"max_concurrent_rollouts": 96},
        "rollout": {
            "max_input_length": length - 8192,
            "max_generate_length": 8192,
            "max_sequence_length": length,
        },
        "optimizer": {"lr": 1e-6},
        "learner": {
            "policy_dtype": "bfloat16",
            "activation_checkpointing": True,
            "max_micro_tokens": length,
        },
        "engine": {
            "type": "vllm",
            "dtype": "bfloat16",
            "weight_transport": "nccl",
            "gpu_memory_utilization": 0.9,
            "data_parallel_size": 3,
        },
        "placement": {"type": "ray", "learner_ranks": 5},
    }
    for name, values in sections.items():
        known = body.get(name)
        body[name] = known | values if isinstance(known, dict) else values
    return rented(*candidates, **body)
