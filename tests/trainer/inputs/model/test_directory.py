"""Where a policy comes from, and what is said when it cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config

from tests.trainer.fixtures.tiny import tiny_config, tiny_model
from trainer.errors import ModelUnavailable, SpecError
from trainer.inputs.model.directory import check_supported, copy_tokenizer, load_policy, save_config
from trainer.rollouts.chat.tokenizer import load_tokenizer


def test_weights_load_as_float32_whatever_they_were_saved_as(tmp_path: Path) -> None:
    model = tiny_model().bfloat16()
    model.save_pretrained(tmp_path)
    loaded = load_policy(tmp_path)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(loaded.state_dict()[name], model.state_dict()[name].float())


def test_other_architectures_and_torn_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(SpecError, match=r"type gpt2 are not supported; .* Qwen2\.5, Llama 3"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="cannot load"):
        load_policy(tmp_path)


def test_torn_and_incomplete_weights_are_refused_instead_of_made_up(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelUnavailable, match="cannot load"):
        load_policy(tmp_path)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelUnavailable, match=r"lacks 1 weights.*up_proj"):
        load_policy(tmp_path)
    weights.unlink()
    with pytest.raises(ModelUnavailable, match="cannot load"):
        load_policy(tmp_path)


def test_a_missing_or_broken_tokenizer_is_named(tmp_path: Path) -> None:
    for content in (None, "{", "\xff"):
        if content is not None:
            (tmp_path / "tokenizer.json").write_text(content, encoding="latin-1")
        with pytest.raises(ModelUnavailable, match=r"tokenizer\.json"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize("option", ["attention_bias", "use_sliding_window", "attention_dropout"])
def test_options_that_are_not_computed_are_refused(option: str) -> None:
    config = tiny_config()
    setattr(config, option, 0.1 if option == "attention_dropout" else True)
    with pytest.raises(SpecError, match=option):
        check_supported(config)
    assert isinstance(check_supported(tiny_config()), Qwen3Config)


def test_tokenizer_files_are_copied_as_they_are(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    (source / "tokenizer.json").write_bytes(b"\x00exact")
    (source / "README.md").write_text("not this")
    copy_tokenizer(source, target)
    assert [path.name for path in target.iterdir()] == ["tokenizer.json"]
    assert (target / "tokenizer.json").read_bytes() == b"\x00exact"


def test_a_written_config_names_its_architecture_and_the_given_one_stays(tmp_path: Path) -> None:
    config = tiny_config()
    save_config(config, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["architectures"] == ["Qwen3ForCausalLM"]
    assert config.architectures is None
