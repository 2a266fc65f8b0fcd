"""Task files of SkyRL with the parameters of the team's training guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.hardware.plan import hardware_plan
from hillclimb.spec.run import RunSpec
from tests.hillclimb.client.migration.test_workflow import migrated

TASK = """
name: fleet-task-grpo
resources:
  accelerators: H100:4
  memory: 64+
  any_of:
    - cloud: lambda
    - cloud: runpod
num_nodes: 1
workdir: .
secrets: {WANDB_API_KEY: null}
envs:
  FLEET_API_KEY: ""
  MODALITY: tool_use
  ENV_KEY: github
  MAX_TASKS: ""
  MAX_TURNS: 50
  NUM_EPOCHS: 20
run: |
  set -euo pipefail
  TOTAL_GPUS=$SKYPILOT_NUM_GPUS_PER_NODE
  uv run -m integrations.fleet.entrypoints.main_fleet \\
    data.train_data="['$HOME/train.parquet']" \\
    environment.env_class=fleet_task \\
    trainer.policy.model.path="Qwen/Qwen3-8B" \\
    trainer.algorithm.advantage_estimator="grpo" \\
    trainer.placement.colocate_all=true \\
    trainer.strategy=fsdp2 \\
    trainer.policy.optimizer_config.lr=5.0e-6 \\
    trainer.train_batch_size=16 \\
    trainer.epochs=${NUM_EPOCHS} \\
    trainer.eval_before_train=true \\
    generator.max_turns=$MAX_TURNS \\
    generator.num_inference_engines=$TOTAL_GPUS \\
    generator.n_samples_per_prompt=8 \\
    generator.sampling_params.stop='["</tool_call>", "<done>"]' \\
    generator.eval_sampling_params.temperature=0.9 \\
    generator.eval_n_samples_per_prompt=3 \\
    trainer.logger="wandb" \\
    trainer.project_name="fleet-task-grpo" \\
    trainer.run_name="fleet_${MODALITY}_${ENV_KEY:-all}" \\
    trainer.ckpt_interval=10
"""


def test_a_task_file_becomes_a_spec_with_its_overrides(tmp_path: Path) -> None:
    found = migrated(tmp_path, TASK, "openenv-fleet-grpo.yaml")
    assert (found.format, found.problems) == ("SkyRL", ())
    spec = RunSpec.model_validate(found.spec)
    assert (spec.name, spec.optimizer.lr) == ("fleet_tool_use_github", 5e-6)
    assert (spec.schedule.train_batch_size, spec.schedule.mini_batch_size) == (16, 4)
    assert (spec.schedule.epochs, spec.environment.max_turns) == (20, 50)
    assert (spec.rollout.n_samples_per_prompt, spec.checkpoints.interval) == (8, 10)
    assert (spec.data.modality, spec.data.env_keys) == ("tool_use", ("github",))
    assert (spec.tracking.wandb.mode, spec.tracking.wandb.project) == ("online", "fleet-task-grpo")
    (decoding,) = spec.eval.decodings
    assert (decoding.temperature, decoding.n_samples_per_prompt) == (0.9, 3)
    assert spec.backend.skypilot is not None
    assert [each.label for each in spec.backend.skypilot.candidates] == [
        "H100:4 on lambda",
        "H100:4 on runpod",
    ]


def test_what_has_no_place_is_said_with_the_reason_once(tmp_path: Path) -> None:
    remarks = migrated(tmp_path, TASK, "openenv-fleet-grpo.yaml").remarks
    names = [remark.partition(":")[0] for remark in remarks]
    assert len(names) == len(set(names))
    assert {
        "FLEET_API_KEY",
        "WANDB_API_KEY",
        "data.train_data",
        "trainer.placement.colocate_all",
        "trainer.strategy",
        "generator.sampling_params.stop",
        "resources.memory",
        "workdir",
    } <= set(names)
    assert "a turn ends where the chat template ends it" in " ".join(remarks)


@pytest.mark.parametrize(
    ("accelerators", "engines", "ranks"), [("H100:4", 2, 2), ("H100:8", 4, 4), ("{H200: 2}", 1, 1)]
)
def test_engines_and_learner_share_the_gpus_of_the_file(
    tmp_path: Path, accelerators: str, engines: int, ranks: int
) -> None:
    task = TASK.replace("H100:4", accelerators)
    spec = RunSpec.model_validate(migrated(tmp_path, task, "t.yaml").spec)
    assert (spec.engine.data_parallel_size, spec.placement.learner_ranks) == (engines, ranks)
    plan = hardware_plan(spec)
    assert plan is not None
    found = plan.candidates[0].estimate
    assert found is not None
    assert found.step_time is not None
    assert found.step_time.busy_share >= 0.7, "on paper"


def test_a_cloud_that_is_not_supported_is_left_out(tmp_path: Path) -> None:
    found = migrated(tmp_path, TASK.replace("cloud: lambda", "cloud: azure"), "t.yaml")
    assert [each["infra"] for each in found.spec["backend"]["skypilot"]["candidates"]] == ["runpod"]
    assert any("azure is left out" in remark for remark in found.remarks)


def test_a_hydra_configuration_is_migrated_without_a_command(tmp_path: Path) -> None:
    config = {
        "trainer": {"policy": {"model": {"path": "Qwen/Qwen2.5-1.5B-Instruct"}}, "epochs": 2},
        "generator": {"backend": "sglang", "max_turns": 4},
        "environment": {"env_class": "search"},
    }
    found = migrated(tmp_path, config, "grpo.json")
    assert found.spec["schedule"]["epochs"] == 2
    assert any("sglang is no engine here" in remark for remark in found.remarks)
    assert any("search is a class of SkyRL's process" in remark for remark in found.remarks)
    (problem,) = found.problems
    assert "write hf:Qwen/Qwen2.5-1.5B-Instruct@REVISION" in problem


def test_a_value_of_the_machine_is_left_to_the_user(tmp_path: Path) -> None:
    task = TASK.replace("trainer.ckpt_interval=10", "trainer.ckpt_interval=$INTERVAL")
    found = migrated(tmp_path, task, "t.yaml")
    assert any(
        remark.startswith("trainer.ckpt_interval: '$INTERVAL' is known on the machine only")
        for remark in found.remarks
    )


@pytest.mark.parametrize(
    ("reduction", "is_filtered", "reduced", "normalized"),
    [
        (None, None, "token_mean", "batch"),
        ("token_mean", False, "token_mean", "batch"),
        ("token_mean", True, "token_mean", "gradient"),
        ("token_mean_legacy", None, "token_mean", "batch"),
        ("sequence_mean", True, "sequence_mean", "batch"),
        ("seq_mean_token_sum_norm", True, "seq_mean_token_sum_norm", "batch"),
    ],
)
def test_the_loss_is_divided_by_the_rollouts_that_skyrl_divides_it_by(
    tmp_path: Path,
    reduction: str | None,
    is_filtered: bool | None,
    reduced: str,
    normalized: str,
) -> None:
    algorithm = {"loss_reduction": reduction, "zero_variance_filter": is_filtered}
    chosen = {key: value for key, value in algorithm.items() if value is not None}
    found = migrated(tmp_path, {"trainer": {"algorithm": chosen, "epochs": 2}}, "grpo.json")
    assert found.problems == ()
    spec = RunSpec.model_validate(found.spec)
    assert (spec.algorithm.loss_reduction, spec.algorithm.normalize_by) == (reduced, normalized)
    said = [remark for remark in found.remarks if remark.startswith("trainer.algorithm")]
    assert len(said) == (reduction == "token_mean_legacy"), said


def test_a_normalisation_that_is_not_here_is_said(tmp_path: Path) -> None:
    algorithm = {
        "loss_reduction": "prompt_mean",
        "advantage_batch_normalize": True,
        "max_seq_len": 4096,
    }
    found = migrated(tmp_path, {"trainer": {"algorithm": algorithm, "epochs": 2}}, "grpo.json")
    assert found.problems == ()
    said = " ".join(found.remarks)
    assert "a mean over prompts is not here: choose algorithm.loss_reduction" in said
    assert "advantages are normalised within their group" in said
    assert "rollout.max_sequence_length: set it" in said
    line = "trainer.train_batch_size=16 trainer.algorithm.zero_variance_filter=$FILTER"
    task = TASK.replace("trainer.train_batch_size=16", line)
    found = migrated(tmp_path, task, "t.yaml")
    assert found.spec["algorithm"]["normalize_by"] == "batch"
    assert any("set algorithm.normalize_by to gradient" in each for each in found.remarks)
