"""Each rank reads its rows of the policy, and has what it had when it read the whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from tests.trainer.fixtures.families import TYPES, family_model
from tests.trainer.fixtures.forked import run_forked
from tests.trainer.fixtures.tiny import tiny_config, tiny_model
from tests.trainer.learners.accounted import _rank_of
from tests.trainer.learners.recorded import batch
from trainer.inputs.model.directory import load_policy, unread_policy
from trainer.inputs.model.weights import WeightFiles
from trainer.learners.model.models import LearnerOptions, build_models
from trainer.learners.rank import LearnerRank

CASES = {
    "all weights": LearnerOptions(),
    "a reference": LearnerOptions(algorithm=AlgorithmSpec(use_kl_loss=True)),
    "adapters": LearnerOptions(learner=LearnerSpec(lora=LoraSpec(rank=4)), seed=3),
    "adapters in bfloat16": LearnerOptions(
        learner=LearnerSpec(lora=LoraSpec(rank=4), policy_dtype="bfloat16")
    ),
    "offloaded": LearnerOptions(learner=LearnerSpec(cpu_offload=True)),
}


@pytest.fixture(params=[True, False], ids=["tied", "head of its own"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A policy in bfloat16, in several files."""
    model = tiny_model(tied=request.param).bfloat16()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    return tmp_path


def in_parts(directory: Path, options: LearnerOptions) -> LearnerRank:
    unread = unread_policy(directory)
    assert unread is not None
    assert all(each.is_meta for each in unread[0].parameters())
    return LearnerRank(unread[0], options, files=unread[1])


@pytest.mark.parametrize("case", CASES)
def test_a_policy_read_in_parts_is_the_one_read_whole(
    directory: Path, tmp_path: Path, case: str
) -> None:
    options = CASES[case]
    whole, parts = LearnerRank(load_policy(directory), options), in_parts(directory, options)
    metrics = [rank.step(batch()) for rank in (whole, parts)]
    for name in ("policy/final_loss", "policy/grad_norm", "policy/policy_entropy"):
        assert metrics[0][name] == metrics[1][name]
    for name, rank in (("whole", whole), ("parts", parts)):
        rank.save(tmp_path / name)
    for path in (tmp_path / "whole").rglob("*"):
        other = tmp_path / "parts" / path.relative_to(tmp_path / "whole")
        assert path.is_dir() or path.read_bytes() == other.read_bytes(), path
    # The digest of the start is the same: each goes on from the other's checkpoint.
    parts.load(tmp_path / "whole")
    whole.load(tmp_path / "parts")


def test_files_that_are_not_the_models_are_left_to_transformers(directory: Path) -> None:
    first = sorted(directory.glob("*.safetensors"))[0]
    tensors = load_file(first)
    name = next(iter(tensors))
    save_file({k: v for k, v in tensors.items() if k != name}, first)
    assert unread_policy(directory) is None
    first.write_bytes(first.read_bytes()[:50])
    assert unread_policy(directory) is None
    first.unlink()
    assert unread_policy(directory) is None


def rename(directory: Path, change: Callable[[str], str]) -> None:
    """Write all tensors into one file, under other names."""
    tensors = {
        change(name): tensor
        for path in directory.glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }
    for path in directory.glob("*.safetensors*"):
        path.unlink()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def behind_the_text_models_prefix(name: str) -> str:
    return name.replace("model.", "model.language_model.", 1)


@pytest.mark.parametrize("prefixed", [False, True], ids=["", "with more than text"])
@pytest.mark.parametrize("model_type", TYPES)
def test_a_policy_of_each_family_is_read_in_parts(
    tmp_path: Path, model_type: str, *, prefixed: bool
) -> None:
    family_model(model_type).bfloat16().save_pretrained(tmp_path, max_shard_size="20KB")
    has_experts = "moe" in model_type
    names = {name for path in tmp_path.glob("*.safetensors") for name in load_file(path)}
    assert any(".mlp.experts.0.gate_proj.weight" in name for name in names) == has_experts
    expected = load_policy(tmp_path).state_dict()
    if prefixed:
        rename(tmp_path, behind_the_text_models_prefix)
    parts = in_parts(tmp_path, LearnerOptions())._models.parameters
    assert parts.keys() == expected.keys() - {"lm_head.weight"} | (
        parts.keys() & {"lm_head.weight"}
    )
    for name, parameter in parts.items():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        assert torch.equal(whole.detach(), expected[name]), name


def test_an_expert_that_lacks_a_matrix_leaves_the_files_to_transformers(tmp_path: Path) -> None:
    family_model("qwen3_moe").save_pretrained(tmp_path)
    rename(tmp_path, lambda name: name.replace("experts.3.up_proj", "experts.3.lost"))
    assert unread_policy(tmp_path) is None


WIDE = {"hidden_size": 512, "intermediate_size": 1536, "vocab_size": 16_384}
NUM_RANKS = 4


def anonymous_bytes() -> int:
    """Memory of this process that is no page of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("RssAnon")]
    return 1024 * int(line.split()[1])


def main(arguments: Sequence[str]) -> int:
    """Load one rank's part, or the whole; print the growth of the process's memory at its peak."""
    directory, way = Path(arguments[0]), arguments[1]
    largest = before = anonymous_bytes()

    def look() -> None:
        nonlocal largest
        largest = max(largest, anonymous_bytes())

    read = WeightFiles.rows

    def rows(files: WeightFiles, name: str, start: int, stop: int) -> torch.Tensor:
        part = read(files, name, start, stop)
        look()
        return part

    WeightFiles.rows = rows  # type: ignore[method-assign]
    options = LearnerOptions(learner=LearnerSpec(policy_dtype="bfloat16"))
    with _rank_of(NUM_RANKS, 1) as ranks:
        unread = unread_policy(directory) if way == "parts" else None
        model, files = unread if unread is not None else (load_policy(directory), None)
        look()
        models = build_models(model, options, ranks, files)
        look()
        assert not any(each.is_meta for each in models.parameters.values())
    sys.stdout.write(f"{largest - before}\n")
    return 0


@pytest.mark.invariant("a rank never holds the whole model")
def test_a_rank_never_holds_the_whole_model(tmp_path: Path) -> None:
    config = Qwen3Config(**(tiny_config(tied=False).to_dict() | WIDE))
    model = Qwen3ForCausalLM(config).bfloat16()
    model.save_pretrained(tmp_path)
    whole = 4 * sum(each.numel() for each in model.parameters())
    found = {}
    for way in ("parts", "whole"):
        done = run_forked(main, [str(tmp_path), way], timeout_s=120)
        assert done.returncode == 0, done.stderr
        found[way] = int(done.stdout.splitlines()[-1])
    largest = 2 * WIDE["hidden_size"] * WIDE["vocab_size"]
    assert found["parts"] < whole / NUM_RANKS + largest, found
    assert found["whole"] > whole, found
