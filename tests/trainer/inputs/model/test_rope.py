"""One answer about positions for learner, engine and export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.model import ModelSpec
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_config, tiny_model
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.errors import SpecError
from trainer.inputs.model.directory import load_config, load_policy, save_config
from trainer.inputs.model.rope import resolve_rope

YARN = ModelSpec.model_validate({"rope": {"factor": 4.0, "original_max_position_embeddings": 256}})


def test_without_yarn_the_models_own_positions_are_said_in_full() -> None:
    assert resolve_rope(tiny_config(), ModelSpec()) == {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "max_position_embeddings": 256,
    }


def test_yarn_keeps_the_models_own_theta() -> None:
    assert resolve_rope(tiny_config(), YARN) == {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        "max_position_embeddings": 1024,
    }


def test_a_yarn_that_does_not_fit_the_model_is_refused() -> None:
    longer = {"factor": 2.0, "original_max_position_embeddings": 512}
    with pytest.raises(SpecError, match="512"):
        resolve_rope(tiny_config(), ModelSpec.model_validate({"rope": longer}))
    config = tiny_config()
    config.rope_parameters = {"rope_type": "default"}
    with pytest.raises(SpecError, match="rope_theta"):
        resolve_rope(config, ModelSpec())


def written(directory: Path, **rope_parameters: object) -> Path:
    """A model's directory whose config says this about positions."""
    config = json.loads(tiny_config().to_json_string())
    config["rope_parameters"] = rope_parameters
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"rope_type": "default"},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
    ],
)
@pytest.mark.parametrize("spec", [ModelSpec(), YARN])
def test_a_theta_that_only_transformers_knows_is_refused(
    tmp_path: Path, own: dict[str, Any], spec: ModelSpec
) -> None:
    with pytest.raises(SpecError, match="rope_theta"):
        load_config(written(tmp_path, **own), spec)


def test_a_theta_is_found_where_older_configs_have_it(tmp_path: Path) -> None:
    path = written(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config | {"rope_theta": 5e5}))
    found = load_config(tmp_path, YARN).rope_parameters
    assert found is not None
    assert found["rope_theta"] == 5e5


OWN_YARN = {
    "rope_type": "yarn",
    "rope_theta": 5e5,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    "beta_fast": 16.0,
    "attention_factor": 1.0,
}


def test_what_else_a_models_own_yarn_says_is_kept(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, **OWN_YARN), YARN)
    assert (config.rope_parameters, config.max_position_embeddings) == (OWN_YARN, 1024)


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (OWN_YARN | {"factor": 2.0}, r"model\.rope\.factor is 4, but .* by 2\.0"),
        ({"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}, "rope_type linear"),
        (OWN_YARN | {"original_max_position_embeddings": 512}, "trained with 512 positions"),
    ],
)
def test_a_model_that_stretches_its_positions_otherwise_is_refused(
    tmp_path: Path, own: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        load_config(written(tmp_path, **own), YARN)


async def test_learner_engine_and_export_agree_beyond_the_trained_positions(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "source")
    model = load_policy(tmp_path / "source", YARN)
    ids = random_ids(600, seed=1)
    expected = reference_logprobs(model, ids)

    weights = model.state_dict() | {"lm_head.weight": model.lm_head.weight}
    engine = TorchEngine(model.config, weights, options=TorchEngineOptions(max_length=1024))
    served = await engine.logprobs(ids)
    torch.testing.assert_close(served, expected, atol=1e-4, rtol=0)
    await engine.close()

    model.save_pretrained(tmp_path / "export")
    save_config(model.config, tmp_path / "export")
    plain = Qwen3ForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)
    torch.testing.assert_close(reference_logprobs(plain, ids), expected, atol=1e-5, rtol=0)
    again = resolve_rope(plain.config, YARN)
    assert again == resolve_rope(tiny_config(), YARN)

    unstretched = Qwen3ForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float32)
    assert (reference_logprobs(unstretched, ids) - expected).abs().max() > 0.05


def test_the_export_says_yarn_in_the_words_of_vllm(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "source")
    save_config(load_policy(tmp_path / "source", YARN).config, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["rope_parameters"] == resolve_rope(tiny_config(), YARN)["rope_parameters"]
    assert "rope_scaling" not in written
