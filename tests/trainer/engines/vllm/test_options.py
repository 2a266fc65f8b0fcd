"""What vLLM is started with on which machine; it is not imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from trainer.engines.vllm.options import TEXT_HALF, VllmOptions
from trainer.engines.vllm.without_torchvision import import_image_processor


def test_what_only_a_processor_needs_is_not_asked_of_a_gpu() -> None:
    arguments = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2).engine_arguments()
    assert not {"enforce_eager", "enable_chunked_prefill", "block_size"} & arguments.keys()


def test_a_long_prompt_is_computed_in_parts_where_it_need_not_be_whole() -> None:
    options = VllmOptions(model_dir=Path(), max_length=65_536, num_sessions=96)
    assert options.engine_arguments()["max_num_batched_tokens"] == 8192
    whole = options.whole_prompts()
    assert whole == {"enable_chunked_prefill": False, "max_num_batched_tokens": 65_536}


def test_a_pass_has_room_for_a_token_of_every_request() -> None:
    """VLLM does not start otherwise."""
    options = VllmOptions(model_dir=Path(), max_length=1024, num_sessions=10_000)
    assert options.engine_arguments()["max_num_batched_tokens"] == 10_000


def test_a_pass_has_no_more_tokens_than_all_requests_together() -> None:
    """On an H100 vLLM's own trial of such a pass died of an illegal memory access."""
    small = VllmOptions(model_dir=Path(), max_length=256, num_sessions=4)
    assert small.engine_arguments()["max_num_batched_tokens"] == 1024
    assert small.whole_prompts()["max_num_batched_tokens"] == 1024
    long = VllmOptions(model_dir=Path(), max_length=4096, num_sessions=1)
    assert long.engine_arguments()["max_num_batched_tokens"] == 4096


def test_no_sampler_is_compiled_that_cannot_say_the_processed_logprobs() -> None:
    options = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2)
    assert options.engine_arguments()["logprobs_mode"] == "processed_logprobs"
    assert options.environment()["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


def test_float32_on_a_gpu_is_float32() -> None:
    exact = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, dtype="float32")
    rounded = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, dtype="bfloat16")
    assert exact.environment()["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in rounded.environment()


def test_what_the_cache_is_made_of_reaches_vllm() -> None:
    usual = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2).engine_arguments()
    assert usual["kv_cache_dtype"] == "auto"
    assert usual["kv_offloading_size"] is None
    larger = VllmOptions(
        model_dir=Path(), max_length=64, num_sessions=2, kv_cache_dtype="fp8", kv_offload_gib=64
    ).engine_arguments()
    assert (larger["kv_cache_dtype"], larger["kv_offloading_size"]) == ("fp8", 64.0)


def test_a_rounded_model_on_a_gpu_has_exact_scores() -> None:
    """As vLLM 0.32 asks for where a learner computes them in float32 (`ModelConfig.head_dtype`)."""
    sizes = {"model_dir": Path(), "max_length": 64, "num_sessions": 2}
    rounded = VllmOptions(**sizes, dtype="bfloat16")  # type: ignore[arg-type]
    assert rounded.engine_arguments()["hf_overrides"]["head_dtype"] == "float32"
    assert "head_dtype" not in rounded.overrides()
    exact = VllmOptions(**sizes)  # type: ignore[arg-type]
    assert "head_dtype" not in exact.engine_arguments()["hf_overrides"]


def test_a_text_model_in_a_larger_checkpoint_is_named_with_positions_in_its_section() -> None:
    options = VllmOptions(
        model_dir=Path(),
        max_length=64,
        num_sessions=2,
        architecture="Qwen3_5ForCausalLM",
        has_linear_attention=True,
        is_text_half=True,
        positions={"rope_parameters": {"rope_theta": 1e7}},
    )
    assert options.engine_arguments()["hf_overrides"] == {
        "architectures": ["Qwen3_5ForCausalLM"],
        "text_config": {"rope_parameters": {"rope_theta": 1e7}},
    }
    assert options.environment()[TEXT_HALF]
    plain = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2)
    assert TEXT_HALF not in plain.environment()


def test_a_module_that_wants_torchvision_is_imported_where_that_is_missing() -> None:
    if importlib.util.find_spec("torchvision") is not None:
        pytest.skip("torchvision is installed here")
    import_image_processor()
    module = sys.modules["transformers.models.qwen2_vl.image_processing_qwen2_vl"]
    assert module.smart_resize(100, 100, factor=32) == (96, 96)
    assert not [name for name in sys.modules if name.partition(".")[0] == "torchvision"]


def test_only_layers_with_an_adapter_are_prepared_for_one() -> None:
    options = VllmOptions(
        model_dir=Path(), max_length=64, num_sessions=2, lora_rank=5, lora_modules=("q_proj",)
    )
    assert options.engine_arguments()["lora_target_modules"] == ["q_proj"]
    assert options.engine_arguments()["max_lora_rank"] == 8


def test_the_experts_of_tokens_are_asked_for_where_they_are_replayed() -> None:
    plain = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2)
    replayed = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, returns_routes=True)
    added = replayed.engine_arguments().keys() - plain.engine_arguments().keys()
    assert added == {"enable_return_routed_experts"}
