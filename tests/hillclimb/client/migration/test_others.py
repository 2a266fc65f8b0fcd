"""Files of Prime Intellect and of OpenAI."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.client.imports.migration.verifiers import env_key_of
from hillclimb.spec.run import RunSpec
from tests.hillclimb.client.migration.test_workflow import migrated

HOSTED = """
model = "Qwen/Qwen3-8B"
max_steps = 100
batch_size = 64
rollouts_per_example = 8
learning_rate = 1e-5
[sampling]
max_tokens = 96
temperature = 0.8
[[env]]
id = "primeintellect/alphabet-sort"
args = { min_turns = 3 }
[eval]
interval = 25
rollouts_per_example = 3
[wandb]
project = "alphabet"
name = "first try"
"""
PRIME_RL = """
max_steps = 20
[orchestrator]
batch_size = 128
rollouts_per_example = 16
[orchestrator.sampling]
max_tokens = 128
[[orchestrator.env]]
id = "reverse-text"
[trainer.optim]
lr = 3e-6
[inference.parallel]
tp = 2
"""


def test_a_hosted_run_becomes_prompts_and_an_environment_to_serve(tmp_path: Path) -> None:
    found = migrated(tmp_path, HOSTED, "rl.toml")
    assert (found.format, found.problems) == ("verifiers", ())
    spec = RunSpec.model_validate(found.spec)
    assert (spec.name, spec.schedule.total_steps, spec.optimizer.lr) == ("first try", 100, 1e-5)
    assert (spec.schedule.train_batch_size, spec.rollout.n_samples_per_prompt) == (8, 8)
    assert (spec.rollout.max_generate_length, spec.rollout.temperature) == (96, 0.8)
    assert (spec.eval.interval, spec.eval.decodings[0].n_samples_per_prompt) == (25, 3)
    assert spec.environment.openenv["alphabet-sort"].reset == {"min_turns": 3}
    assert any("serve it over OpenEnv's protocol" in remark for remark in found.remarks)
    assert any("64 rollouts are 8 prompts with 8 samples" in remark for remark in found.remarks)


def test_the_sections_of_prime_rl_are_read_where_they_stand(tmp_path: Path) -> None:
    found = migrated(tmp_path, PRIME_RL, "reverse.toml")
    assert found.problems == ()
    spec = RunSpec.model_validate(found.spec)
    assert (spec.optimizer.lr, spec.schedule.train_batch_size) == (3e-6, 8)
    assert spec.data.env_keys == ("reverse-text",)
    assert "inference.parallel.tp: no place: no key of a spec has this meaning" in found.remarks


def test_the_key_of_an_environment_is_its_name() -> None:
    assert env_key_of("primeintellect/wiki-search@0.1") == "wiki-search"
    assert env_key_of("2048") == "env-2048"


GRADER = {"type": "string_check", "name": "g", "operation": "eq", "input": "a", "reference": "b"}
JOB = {
    "model": "o4-mini-2025-04-16",
    "training_file": "file-abc",
    "validation_file": "file-def",
    "suffix": "booking expert",
    "seed": 7,
    "metadata": {"team": "fleet"},
    "integrations": [{"type": "wandb", "wandb": {"project": "rft", "tags": ["a"]}}],
    "method": {
        "type": "reinforcement",
        "reinforcement": {
            "grader": GRADER,
            "hyperparameters": {
                "n_epochs": 2,
                "batch_size": 8,
                "eval_interval": 5,
                "eval_samples": 3,
                "compute_multiplier": "auto",
                "learning_rate_multiplier": 1.5,
                "reasoning_effort": "medium",
            },
        },
    },
}


def test_a_fine_tuning_job_keeps_its_hyperparameters(tmp_path: Path) -> None:
    found = migrated(tmp_path, JOB, "job.json")
    assert (found.format, found.problems) == ("OpenAI", ())
    spec = RunSpec.model_validate(found.spec)
    assert (spec.name, spec.schedule.epochs, spec.schedule.seed) == ("booking expert", 2, 7)
    assert (spec.schedule.train_batch_size, spec.schedule.mini_batch_size) == (8, 8)
    assert (spec.eval.interval, spec.eval.decodings[0].n_samples_per_prompt) == (5, 3)
    assert (spec.tags, spec.tracking.wandb.project) == (("team:fleet",), "rft")
    names = {remark.partition(":")[0] for remark in found.remarks}
    assert {"model", "training_file", "validation_file", "grader string_check"} <= names
    assert {"compute_multiplier", "learning_rate_multiplier", "reasoning_effort"} <= names


@pytest.mark.parametrize(
    "document", [GRADER, {"grader": GRADER}, {"type": "python", "source": "x"}]
)
def test_a_grader_alone_becomes_a_run_with_what_is_left_to_do(
    tmp_path: Path, document: dict[str, object]
) -> None:
    found = migrated(tmp_path, document, "grader.json")
    assert (found.format, found.problems) == ("OpenAI", ())
    assert any("verifier_code of the tasks" in remark for remark in found.remarks)
