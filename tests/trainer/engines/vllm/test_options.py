"""What vLLM is started with on which machine; it is not imported."""

from __future__ import annotations

from pathlib import Path

from trainer.engines.vllm.options import VllmOptions


def test_what_only_a_processor_needs_is_not_asked_of_a_gpu() -> None:
    arguments = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2).engine_arguments()
    assert not {"enforce_eager", "enable_chunked_prefill", "block_size"} & arguments.keys()


def test_float32_on_a_gpu_is_float32() -> None:
    exact = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, dtype="float32")
    rounded = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, dtype="bfloat16")
    assert exact.environment()["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in rounded.environment()
