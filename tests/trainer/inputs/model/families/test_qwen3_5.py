"""Qwen3.5's checkpoints hold more than text: what is read of them, and what a policy says of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
)

from hillclimb.spec.training.model import ModelSpec
from tests.trainer.fixtures.families import OWN, SIZES
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs
from trainer.errors import SpecError
from trainer.inputs.model.directory import LEFT_OUT, load_config, load_policy
from trainer.learners.inline import InlineLearner

VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "patch_size": 16,
    "out_hidden_size": 64,
    "num_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of text, images and a draft head, as published ones are."""
    path = tmp_path_factory.mktemp("whole")
    text = SIZES | OWN["qwen3_5_text"]
    config = Qwen3_5Config(
        text_config=text, vision_config=VISION, tie_word_embeddings=True, image_token_id=500
    )
    torch.manual_seed(0)
    whole: Any = Qwen3_5ForConditionalGeneration(config)
    whole.save_pretrained(path)
    weights = load_file(path / "model.safetensors")
    weights["mtp.fc.weight"] = torch.ones(64, 128)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def test_the_text_model_is_read_and_what_is_left_out_is_said_in_log_and_files(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = json.loads((checkpoint / "config.json").read_text())
    assert "rope_theta" in raw["text_config"]["rope_parameters"]
    names = load_file(checkpoint / "model.safetensors").keys()
    assert all(
        name.startswith(("model.language_model.", "model.visual.", "mtp.")) for name in names
    )
    with caplog.at_level(logging.WARNING):
        model = load_policy(checkpoint)
    assert "'mtp.': 1" in caplog.text
    tokens = random_ids(60, seed=1)
    expected = reference_logprobs(
        AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32), tokens
    )
    assert torch.equal(reference_logprobs(model, tokens), expected)  # type: ignore[arg-type]
    InlineLearner(model).save(tmp_path)
    written = json.loads((tmp_path / "policy" / "config.json").read_text())
    visual = sum(name.startswith("model.visual.") for name in names)
    assert written[LEFT_OUT] == {"model.visual.": visual, "mtp.": 1}
    assert written["model_type"] == "qwen3_5_text"
    # A run that starts from this one's policy says it still.
    again = load_policy(tmp_path / "policy")
    assert again.config.to_dict()[LEFT_OUT] == written[LEFT_OUT]


def test_a_trained_text_model_goes_back_into_its_checkpoint(
    checkpoint: Path, tmp_path: Path
) -> None:
    """The lines of docs/models.md."""
    policy = load_policy(checkpoint)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.1)
    InlineLearner(policy).save(tmp_path)
    whole: Any = Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint)
    text: Any = Qwen3_5ForCausalLM.from_pretrained(tmp_path / "policy")
    whole.model.language_model.load_state_dict(text.model.state_dict())
    whole.lm_head.load_state_dict(text.lm_head.state_dict())
    whole.save_pretrained(tmp_path / "whole")
    before, after = (
        load_file(each / "model.safetensors") for each in (checkpoint, tmp_path / "whole")
    )
    for name, tensor in after.items():
        grown = not name.startswith("model.visual.") and bool(tensor.count_nonzero())
        assert torch.equal(tensor, before[name]) is not grown, name


def test_yarn_over_positions_in_three_parts_is_refused(checkpoint: Path) -> None:
    rope = {"factor": 2.0, "original_max_position_embeddings": 512}
    with pytest.raises(SpecError, match="mrope_section"):
        load_config(checkpoint, ModelSpec.model_validate({"rope": rope}))


def test_a_text_section_without_its_theta_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    raw = json.loads((checkpoint / "config.json").read_text())
    del raw["text_config"]["rope_parameters"]["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(SpecError, match="rope_theta"):
        load_config(tmp_path)
