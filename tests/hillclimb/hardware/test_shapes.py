"""Numbers of parameters, against what is published and what can be added up by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.hardware.model.published import KNOWN, shape_of
from hillclimb.hardware.model.shapes import TINY, ExpertShape, UnknownShape, shape_of_config
from tests.hillclimb.hardware.rented import QWEN3_8B

ASSETS = Path(__file__).resolve().parents[3] / "assets"


def test_qwen3_8b_adds_up_by_hand() -> None:
    shape = KNOWN["Qwen3-8B"]
    attention = 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096
    layer = attention + 3 * 4096 * 12_288 + 2 * 4096 + 2 * 128
    assert shape.layer_parameters == layer == 192_946_432
    assert shape.num_parameters == 36 * layer + 2 * 151_936 * 4096 + 4096 == 8_190_735_360


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # The totals of the safetensors on the hub.
        ("Qwen3-0.6B", 596_049_920),
        ("Qwen3-8B", 8_190_735_360),
        ("Qwen3-32B", 32_762_123_264),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen3-235B-A22B", 235_093_634_560),
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen2.5-3B", 3_085_938_688),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen2.5-14B", 14_770_033_664),
        ("Qwen2.5-32B", 32_763_876_352),
        ("Qwen2.5-72B", 72_706_203_648),
        ("Llama-3.2-1B", 1_235_814_400),
        ("Llama-3.2-3B", 3_212_749_824),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
    ],
)
def test_totals_are_those_of_the_published_files(name: str, published: int) -> None:
    assert KNOWN[name].num_parameters == published


def test_of_experts_a_token_needs_only_its_own() -> None:
    shape = KNOWN["Qwen3-30B-A3B"]
    idle = 48 * (128 - 8) * 3 * 2048 * 768
    assert shape.active_parameters == shape.num_parameters - idle
    # What their names say: billions of parameters, and of those that a token activates.
    for name in ("Qwen3-30B-A3B", "Qwen3-235B-A22B"):
        held, active = (int(each.strip("AB")) for each in name.split("-")[1:])
        assert int(KNOWN[name].num_parameters / 1e9) == held
        assert int(KNOWN[name].active_parameters / 1e9) == active
    assert shape.largest_tensor == 128 * 2 * 768 * 2048 > shape.embedding_parameters
    assert KNOWN["Qwen3-8B"].active_parameters == KNOWN["Qwen3-8B"].num_parameters


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_a_config_tells_which_layers_have_experts(name: str) -> None:
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 5,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 512,
        name: 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    }
    shape = shape_of_config(config)
    assert shape.experts == ExpertShape(num=8, per_token=2, width=32, num_layers=1)
    attention = 2 * 64 * (128 + 64) + 2 * 64 + 2 * 32
    dense, sparse = 3 * 64 * 96, 8 * 64 + 8 * 3 * 64 * 32
    assert shape.num_parameters == 5 * attention + 4 * dense + sparse + 2 * 512 * 64 + 64
    with pytest.raises(UnknownShape, match="moe_intermediate_size"):
        shape_of_config(config | {"moe_intermediate_size": None})


def test_qwen3_5_27b_adds_up_by_hand() -> None:
    shape = KNOWN["Qwen3.5-27B"]
    gates, keys_and_values, out = 2 * 5120 * 6144, 2 * 5120 * 1024, 6144 * 5120
    attention = gates + keys_and_values + out + 2 * 256 + 2 * 5120
    channels = 2 * 16 * 128 + 48 * 128
    projections = 5120 * (channels + 6144 + 2 * 48) + 6144 * 5120
    linear = projections + 4 * channels + 2 * 48 + 128 + 2 * 5120
    mlp = 3 * 5120 * 17_408
    layers = 16 * attention + 48 * linear + 64 * mlp
    assert shape.num_parameters == layers + 2 * 248_320 * 5120 + 5120 == 26_895_998_464
    # The largest layer is the one that FSDP holds whole.
    assert shape.layer_parameters == linear + mlp > attention + mlp
    assert shape.kv_bytes_per_token(2) == 2 * 16 * 4 * 256 * 2 == 65_536
    assert shape.state_bytes(2) == 48 * (48 * 128 * 128 * 4 + 3 * channels * 2) == 153_944_064
    assert KNOWN["Qwen3-8B"].state_bytes(2) == 0


def test_of_qwen3_5_with_experts_a_token_needs_what_all_share_and_its_own() -> None:
    shape = KNOWN["Qwen3.5-35B-A3B"]
    assert (int(shape.num_parameters / 1e9), int(shape.active_parameters / 1e9)) == (34, 3)
    idle = 40 * (256 - 8) * 3 * 2048 * 512
    assert shape.num_parameters - shape.active_parameters == idle
    assert shape.largest_tensor == 256 * 2 * 512 * 2048 > shape.embedding_parameters / 2


def test_a_checkpoint_of_text_and_images_has_the_shape_of_its_text_model() -> None:
    text = {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 8,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 512,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    }
    shape = shape_of_config({"model_type": "qwen3_5", "text_config": text})
    assert shape == shape_of_config(text)
    assert shape.linear is not None
    assert (shape.linear.num_layers, shape.num_attention_layers) == (6, 2)
    kinds = ["full_attention"] * 7 + ["linear_attention"]
    other = shape_of_config(text | {"layer_types": kinds})
    assert other.num_attention_layers == 7
    modules = ("q_proj", "out_proj", "in_proj_qkv", "up_proj")
    own = 2 * (64 + 2 * 64) + 6 * (32 + 64) + 6 * (64 + 64) + 8 * (64 + 96)
    assert shape.adapter_parameters(4, modules) == 4 * own
    with pytest.raises(UnknownShape, match="linear_num_value_heads"):
        shape_of_config(text | {"linear_num_value_heads": None})


def test_a_cache_holds_keys_and_values_of_every_layer() -> None:
    assert KNOWN["Qwen3-8B"].kv_bytes_per_token(2) == 2 * 36 * 8 * 128 * 2 == 147_456
    # Measured (reference of the trainer): 1 GiB holds 262,144 tokens of such a model in float32.
    measured = shape_of_config(
        {
            "model_type": "qwen3",
            "num_hidden_layers": 4,
            "hidden_size": 256,
            "intermediate_size": 768,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "vocab_size": 512,
        }
    )
    assert 2**30 / measured.kv_bytes_per_token(4) == 262_144


def test_adapters_are_rank_times_both_ends() -> None:
    shape = KNOWN["Qwen3-8B"]
    assert shape.adapter_parameters(16, ("q_proj",)) == 36 * 16 * (4096 + 4096)
    assert shape.adapter_parameters(16, ("down_proj", "k_proj")) == 36 * 16 * (
        12_288 + 4096 + 4096 + 1024
    )


def test_a_source_tells_its_shape_or_does_not() -> None:
    assert shape_of(QWEN3_8B) is KNOWN["Qwen3-8B"]
    base = replace(KNOWN["Qwen3-8B"], num_positions=32_768)
    assert shape_of(QWEN3_8B.replace("8B@", "8B-Base@")) == base
    assert shape_of("builtin:tiny-qwen3-b") is TINY
    assert shape_of("s3://bucket/model") is None
    commit = "a" * 40
    assert shape_of(f"hf:meta-llama/Llama-3.1-8B-Instruct@{commit}") is KNOWN["Llama-3.1-8B"]
    assert shape_of(f"hf:Qwen/Qwen2.5-7B-Instruct@{commit}") is KNOWN["Qwen2.5-7B"]
    base = replace(KNOWN["Qwen2.5-7B"], num_positions=None)
    assert shape_of(f"hf:Qwen/Qwen2.5-7B@{commit}") == base
    assert shape_of(f"hf:somebody/Qwen2.5-7B-Instruct@{commit}") is None
    assert shape_of(QWEN3_8B.replace("Qwen3-8B", "Qwen3-30B-A3B")) is KNOWN["Qwen3-30B-A3B"]
    later = shape_of(f"hf:Qwen/Qwen3-30B-A3B-Instruct-2507@{commit}")
    assert later == replace(KNOWN["Qwen3-30B-A3B"], num_positions=None)


@pytest.mark.parametrize("name", ["tiny-qwen3-a", "tiny-qwen3-b"])
def test_the_shipped_models_have_the_shape_that_is_said(name: str) -> None:
    config = json.loads((ASSETS / name / "config.json").read_text())
    assert shape_of_config(config) == TINY
    assert TINY.num_parameters == 853_056


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3'"),
        ({"model_type": "llama"}, "num_hidden_layers is None"),
        ({"model_type": "qwen3"}, "num_hidden_layers is None"),
        ({"model_type": "qwen3", "num_hidden_layers": True}, "num_hidden_layers is True"),
    ],
)
def test_a_config_that_says_too_little_is_refused(config: dict[str, object], sentence: str) -> None:
    with pytest.raises(UnknownShape, match=sentence):
        shape_of_config(config)
