"""The command that makes a model, end to end with hardly any training."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from assets.warmstart.__main__ import main

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_the_command_writes_a_loadable_model_its_tokenizer_and_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    counts = {"copy-steps": 1, "demo-steps": 1, "easy-steps": 1, "polish-steps": 1}
    counts["tasks-per-env"] = 4
    arguments = [f"--{name}={count}" for name, count in counts.items()]
    arguments += ["--seed=3", f"--out={out}", "--eval-tasks-per-env=1"]
    source = ASSETS / "tiny-qwen3-a"
    monkeypatch.setattr(sys, "argv", ["warmstart", *arguments, f"--tokenizer-from={source}"])
    main()
    card = json.loads((out / "CARD.json").read_text())
    assert card["seed"] == 3
    assert "--copy-steps 1" in card["command"]
    assert set(card["measured"]["pass_rates"]) == {"sampled", "greedy"}
    assert (out / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert AutoModelForCausalLM.from_pretrained(out).config.hidden_size == 128
    assert "copy accuracy" in capsys.readouterr().out
