"""A whole run on a server whose model speaks as Kimi K2 does, by Kimi's name and tokenizer."""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
from pathlib import Path

import pytest

from hillclimb.protocol.events import StepCompleted, TrainerStarted
from tests.trainer.fixtures.kimi import write_kimi_tokenizer
from tests.trainer.fixtures.tiny_model import write_tiny_model
from tests.trainer.workers.tinker.server.local import KEY, tinker_server
from tests.trainer.workers.tinker.test_run import POSITIONS, a_run
from trainer.rollouts.chat.tokenizer import load_tokenizer

NAME = "moonshotai/Kimi-K2-Instruct"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)


def source(directory: Path) -> Path:
    """What a run needs of a Kimi: its config, of an architecture not computed here, and its ids."""
    vocab_size = write_kimi_tokenizer(directory, num_tokens=256)
    config = {"model_type": "kimi_k2", "vocab_size": vocab_size}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.long
def test_a_run_learns_in_kimis_turns(tmp_path: Path) -> None:
    own = source(tmp_path / "kimi")
    served = write_tiny_model(
        tmp_path / "served", positions=POSITIONS, tokenizer=load_tokenizer(own)
    )
    with tinker_server(served, tmp_path / "state", model_name=NAME) as url:
        run = a_run(
            tmp_path / "run",
            url,
            tinker={"base_model": NAME},
            model={"source": str(own)},
            optimizer={"lr": 0.01, "max_grad_norm": None},
            rollout={"n_samples_per_prompt": 16},
            schedule={"total_steps": 6},
        )
        asyncio.run(run.train())
    (started,) = run.events(TrainerStarted)
    assert (started.engine, started.num_parameters) == ("tinker", 0)
    steps = run.events(StepCompleted)
    rates = [each.metrics["reward/avg_raw_reward"] for each in steps]
    assert statistics.mean(rates[-3:]) > statistics.mean(rates[:2]) + 0.1
    (shown,) = (run.root / "blobs").rglob("prompts.jsonl.gz")
    text = gzip.decompress(shown.read_bytes()).decode()
    assert "<|im_system|>system<|im_middle|>You are an agent working in the app booking." in text
    assert ".<|im_end|><|im_assistant|>assistant<|im_middle|>" in text
