"""What the spec says about model and learner reaches them, and whole runs go through with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hillclimb.protocol.events import StepCompleted
from hillclimb.spec.training.model import YarnSpec
from tests.trainer.fixtures.short_run import ShortRun
from trainer.errors import SpecError
from trainer.jobs.train.checkpoints import find_latest

YARN = YarnSpec(factor=2.0, original_max_position_embeddings=1600)
LORA = {"rank": 2, "alpha": 4}


async def test_every_key_of_the_learner_and_the_optimizer_reaches_the_learner(
    tmp_path: Path,
) -> None:
    learner = {
        "policy_dtype": "bfloat16",
        "activation_checkpointing": True,
        "max_micro_tokens": 333,
        "logprob_chunk_tokens": 44,
        "lora": LORA,
    }
    optimizer = {"lr": 0.1, "lr_scheduler": "linear", "min_lr_ratio": 0.3}
    schedule = {"lr_warmup_steps": 2, "total_steps": 7, "seed": 5}
    run = ShortRun(tmp_path, learner=learner, optimizer=optimizer, schedule=schedule)
    trainer = run.build()
    options = trainer._parts.workers.learner.rank._options
    assert options.learner == run.spec.learner
    assert options.optimizer == run.spec.optimizer
    assert options.algorithm == run.spec.algorithm
    assert (options.lr_warmup_steps, options.total_steps, options.seed) == (2, 7, 5)
    run.journal.abandon()
    await trainer.close()


@pytest.mark.long
async def test_adapters_in_bfloat16_train_save_and_go_on(tmp_path: Path) -> None:
    sections = {"learner": {"policy_dtype": "bfloat16", "lora": LORA}}
    whole = ShortRun(tmp_path / "whole", **sections)
    await whole.train()
    steps: list[StepCompleted] = whole.events(StepCompleted)
    assert len(steps) == 4
    assert all(0.0 < step.metrics["policy/grad_norm"] < 1e3 for step in steps)

    half = ShortRun(tmp_path / "half", run_id=whole.run_id, **sections)
    half.spec = half.spec.model_copy(
        update={"schedule": half.spec.schedule.model_copy(update={"total_steps": 2})}
    )
    await half.train()
    half.spec = whole.spec
    await half.train(2, resume_from=find_latest(half.store, half.run_id))
    found, expected = (
        load_file(each.root / "blobs" / key / "adapter" / "adapter_model.safetensors")
        for each in (half, whole)
        if (key := find_latest(each.store, each.run_id))
    )
    assert found.keys() == expected.keys()
    assert all((found[name] == expected[name]).all() for name in expected)


async def test_yarn_lengthens_the_context_of_a_whole_run_and_of_its_export(tmp_path: Path) -> None:
    longer = {"max_input_length": 3000, "max_sequence_length": 3100}
    with pytest.raises(SpecError, match="3100"):
        ShortRun(tmp_path / "plain", rollout=longer).build()
    run = ShortRun(tmp_path / "yarn", rollout=longer)
    stretched = run.spec.model.model_copy(update={"rope": YARN})
    run.spec = run.spec.model_copy(update={"model": stretched})
    await run.train()
    key = find_latest(run.store, run.run_id)
    config = json.loads((run.root / "blobs" / str(key) / "policy" / "config.json").read_text())
    assert config["max_position_embeddings"] == 3200
    assert config["rope_parameters"]["rope_type"] == "yarn"
    assert config["architectures"] == ["Qwen3ForCausalLM"]
