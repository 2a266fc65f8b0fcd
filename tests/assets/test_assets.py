"""The shipped models are the ones their cards describe."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from assets.warmstart.text.habits import HABITS
from assets.warmstart.tokenizer import TEXT_MARKERS, tokenizer_hash
from trainer.rollouts.chat.prompts import PROMPT_VERSION

ASSETS = Path(__file__).parents[2] / "assets"
NAMES = ("tiny-qwen3-a", "tiny-qwen3-b")


def card_of(name: str) -> dict:
    return json.loads((ASSETS / name / "CARD.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_checksums_and_versions_match_the_card(name: str) -> None:
    card = card_of(name)
    weights = (ASSETS / name / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == card["weights_sha256"]
    assert tokenizer_hash(ASSETS / name) == card["tokenizer_sha256"]
    assert card["prompt_version"] == PROMPT_VERSION
    assert card["habits"] == {
        key: {"flaw": habit.flaw.name, "share": habit.share} for key, habit in HABITS.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_config_names_its_architecture_for_vllm(name: str) -> None:
    config = json.loads((ASSETS / name / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]


@pytest.mark.parametrize("name", NAMES)
def test_plain_transformers_loads_model_and_tokenizer(name: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(ASSETS / name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / name)
    card = card_of(name)
    assert type(model).__name__ == card["architecture"]["class"]
    assert sum(parameter.numel() for parameter in model.parameters()) == card["num_parameters"]
    assert len(tokenizer) == card["architecture"]["vocab_size"]
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.isfinite(model(ids).logits).all()


def test_both_models_share_one_tokenizer_and_differ_in_seed_and_weights() -> None:
    first, second = (card_of(name) for name in NAMES)
    assert first["tokenizer_sha256"] == second["tokenizer_sha256"]
    assert first["seed"] != second["seed"]
    assert first["weights_sha256"] != second["weights_sha256"]


def test_text_markers_are_single_visible_tokens_and_digits_stand_alone() -> None:
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / NAMES[0])
    for marker in TEXT_MARKERS:
        ids = tokenizer(marker).input_ids
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == marker
    assert len(tokenizer("2026").input_ids) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_card_holds_pass_rates_of_both_decodings_on_enough_tasks(name: str) -> None:
    for rates in card_of(name)["measured"]["pass_rates"].values():
        assert all(rates[env_key]["n"] >= 60 for env_key in HABITS)


def test_the_shipped_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()) < 7_000_000
