"""A rank by itself: precision, other policies, saving beside training, what it reports."""

from __future__ import annotations

import json
import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_config, tiny_model
from tests.trainer.learners.packing.test_partition import lone
from tests.trainer.learners.recorded import batch
from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.loss.loss import policy_loss
from trainer.algo.loss.stats import LossStats
from trainer.algo.sequences import Batch
from trainer.errors import LearnerError
from trainer.learners.model.export import gathered, precision_of
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup, Ranks
from trainer.learners.packing.packing import pack_single
from trainer.learners.rank import LearnerRank
from trainer.learners.update.throughput import train_flops

IDS = random_ids(40, seed=3)


def rank(**learner: object) -> LearnerRank:
    return LearnerRank(
        tiny_model(),
        LearnerOptions(
            optimizer=OptimizerSpec(lr=1e-3), learner=LearnerSpec.model_validate(learner)
        ),
    )


def weights_after_two_steps(learner: LearnerRank) -> dict[str, torch.Tensor]:
    for _ in range(2):
        learner.step(batch())
    return learner.weights()


def test_recomputed_activations_and_chunks_change_no_bit_or_next_to_none() -> None:
    expected = weights_after_two_steps(rank())
    recomputed = weights_after_two_steps(rank(activation_checkpointing=True))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in recomputed.items())
    chunked = weights_after_two_steps(rank(logprob_chunk_tokens=7))
    for name, tensor in chunked.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


def test_shards_kept_in_the_machines_memory_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU no tensor shows where its shard is: what FSDP was asked for does."""
    asked: list[bool] = []

    def noted(module: torch.nn.Module, *, offload_policy: OffloadPolicy, **options: Any) -> object:
        asked.append(isinstance(offload_policy, CPUOffloadPolicy))
        return fully_shard(module, offload_policy=offload_policy, **options)

    monkeypatch.setattr("trainer.learners.model.sharding.fully_shard", noted)
    expected = weights_after_two_steps(rank())
    num_modules = len(asked)
    assert asked == [False] * num_modules
    offloaded = weights_after_two_steps(rank(cpu_offload=True))
    assert asked[num_modules:] == [True] * num_modules
    assert all(torch.equal(tensor, expected[name]) for name, tensor in offloaded.items())


def test_an_offloaded_rank_goes_on_from_what_another_one_saved(tmp_path: Path) -> None:
    kept, offloaded = rank(), rank(cpu_offload=True)
    kept.step(batch())
    kept.save(tmp_path)
    offloaded.load(tmp_path)
    kept.step(batch())
    offloaded.step(batch())
    weights = kept.weights()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in offloaded.weights().items())


def test_fsdp_finds_nothing_to_look_into_before_a_pass() -> None:
    """It goes through containers element by element: those of a micro-batch have every token."""
    learner, seen = rank(), []
    learner._models.policy.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    learner.step(batch())
    assert seen
    assert not any(is_dataclass(each) or isinstance(each, dict | list | tuple) for each in seen)


def test_recomputed_activations_are_not_kept() -> None:
    kept = []
    for recompute in (False, True):
        learner = rank(activation_checkpointing=recompute)
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            learner._models.policy(pack_single(IDS, device=torch.device("cpu")))
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


def test_in_bfloat16_weights_of_record_gradients_and_optimizer_are_float32() -> None:
    learner = rank(policy_dtype="bfloat16")
    metrics = learner.step(batch())
    for parameter in learner._models.trained.values():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert learner._optimizer.state[parameter]["exp_avg"].dtype == torch.float32
    exact = rank().step(batch())
    assert metrics["policy/grad_norm"] == pytest.approx(exact["policy/grad_norm"], rel=0.05)
    assert 1e-5 < metrics["policy/rollout_train_logprobs_abs_diff_mean"] < 0.1


def test_a_bfloat16_policy_is_exported_as_it_computes(tmp_path: Path) -> None:
    learner = rank(policy_dtype="bfloat16")
    learner.step(batch())
    learner.save(tmp_path)
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = Qwen3ForCausalLM.from_pretrained(tmp_path / "policy", dtype="auto")
    assert loaded.dtype == torch.bfloat16
    torch.testing.assert_close(
        reference_logprobs(loaded.float(), IDS), learner.logprobs(IDS), atol=0.2, rtol=0
    )


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
def test_gathered_weights_are_copies_in_the_precision_that_is_needed(
    dtype: torch.dtype | None,
) -> None:
    learner = rank()
    parameters = learner._models.parameters
    precision = None if dtype is None else precision_of(learner._models.config, dtype)
    found = gathered(parameters, learner._ranks, precision)
    for name, parameter in parameters.items():
        own = parameter.detach().full_tensor()  # type: ignore[attr-defined]
        assert torch.equal(found[name], own.to(dtype or torch.float32)), name
        assert found[name].dtype is (dtype or torch.float32)
        assert found[name].data_ptr() != own.data_ptr()


def test_weights_are_written_whole_with_the_tied_head(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    assert learner.write_weights(tmp_path / "shm" / "weights.safetensors").version == 1
    written = load_file(tmp_path / "shm" / "weights.safetensors")
    assert written.keys() == tiny_model().state_dict().keys()
    assert torch.equal(written["lm_head.weight"], written["model.embed_tokens.weight"])
    assert [path.name for path in (tmp_path / "shm").iterdir()] == ["weights.safetensors"]


def test_what_is_trained_while_a_save_is_under_way_is_not_in_it(tmp_path: Path) -> None:
    learner = rank()
    learner.step(batch())
    expected = learner.weights()
    finish = learner.begin_save(tmp_path)
    learner.step(batch())
    finish()
    resumed = rank()
    resumed.load(tmp_path)
    assert resumed.version == 1
    assert all(torch.equal(tensor, expected[n]) for n, tensor in resumed.weights().items())
    loaded = Qwen3ForCausalLM.from_pretrained(tmp_path / "policy")
    assert torch.equal(loaded.state_dict()["model.norm.weight"], expected["model.norm.weight"])
    resumed.step(batch())
    went_on = learner.weights()
    assert all(torch.equal(tensor, went_on[n]) for n, tensor in resumed.weights().items())


def test_the_export_names_its_architecture(tmp_path: Path) -> None:
    rank().save(tmp_path)
    config = json.loads((tmp_path / "policy" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]


def test_loading_before_the_first_update_restores_an_optimizer_without_state(
    tmp_path: Path,
) -> None:
    rank().save(tmp_path)
    learner = rank()
    learner.step(batch())
    learner.load(tmp_path)
    fresh = weights_after_two_steps(rank())
    again = weights_after_two_steps(learner)
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in again.items())


def test_the_random_state_is_that_of_the_save(tmp_path: Path) -> None:
    learner = rank()
    torch.manual_seed(11)
    learner.save(tmp_path)
    expected = torch.rand(4)
    torch.manual_seed(12)
    learner.load(tmp_path)
    assert torch.equal(torch.rand(4), expected)


def test_scoring_after_a_load_uses_what_was_loaded(tmp_path: Path) -> None:
    other = LearnerRank(tiny_model(seed=4))
    other.save(tmp_path)
    learner = rank()
    learner.logprobs(IDS)
    learner.load(tmp_path)
    assert torch.equal(learner.logprobs(IDS), other.logprobs(IDS))


def test_other_policies_are_scored_where_the_loss_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ActionTokens] = []

    def noted(
        logprobs: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec
    ) -> tuple[torch.Tensor, LossStats]:
        seen.append(actions)
        return policy_loss(logprobs, actions, algorithm)

    monkeypatch.setattr("trainer.algo.loss.objective.policy_loss", noted)
    monkeypatch.setattr("trainer.algo.loss.objective.needs_reference", lambda _: True)
    monkeypatch.setattr("trainer.algo.loss.objective.needs_proximal", lambda _: True)
    learner = rank()
    learner.step(Batch(mini_batches=batch().mini_batches * 2))
    first, second = seen
    for actions in seen:
        # At the first step both are the policy that sampled, in the second mini-batch as well.
        for found in (actions.proximal_logprobs_A, actions.reference_logprobs_A):
            assert found is not None
            torch.testing.assert_close(found, first.behaviour_logprobs_A, atol=1e-5, rtol=0)
    learner.step(batch())
    third = seen[2]
    assert third.proximal_logprobs_A is not None
    assert third.reference_logprobs_A is not None
    assert second.reference_logprobs_A is not None
    assert torch.equal(third.reference_logprobs_A, second.reference_logprobs_A)
    assert (third.proximal_logprobs_A - third.reference_logprobs_A).abs().max() > 1e-3


def test_without_need_no_other_policy_is_kept_or_scored() -> None:
    learner = rank()
    (micro,) = learner._pack(batch().mini_batches[0])
    assert learner._models.reference is None
    assert learner._with_other_policies(micro) is micro


def test_the_schedule_of_the_learning_rate_is_followed() -> None:
    optimizer = OptimizerSpec(lr=1e-3, lr_scheduler="linear", min_lr_ratio=0.5)
    learner = LearnerRank(
        tiny_model(), LearnerOptions(optimizer=optimizer, total_steps=2, lr_warmup_steps=2)
    )
    found = [learner.step(batch())["policy/policy_lr"] for _ in range(3)]
    assert found == pytest.approx([5e-4, 7.5e-4, 5e-4])


def test_a_step_without_an_update_reports_the_rate_that_one_would_have_had(tmp_path: Path) -> None:
    optimizer = OptimizerSpec(lr=1e-3, lr_scheduler="linear", min_lr_ratio=0.5)
    options = LearnerOptions(optimizer=optimizer, total_steps=4, lr_warmup_steps=4)
    learner, nothing = LearnerRank(tiny_model(), options), Batch(mini_batches=())
    assert learner.step(nothing)["policy/policy_lr"] == pytest.approx(2.5e-4)
    learner.step(batch())
    assert learner.step(nothing)["policy/policy_lr"] == pytest.approx(3.75e-4)
    learner.save(tmp_path)
    resumed = LearnerRank(tiny_model(), options)
    resumed.load(tmp_path)
    assert resumed.step(nothing)["policy/policy_lr"] == pytest.approx(3.125e-4)


def test_speed_and_memory_are_reported_and_a_cpu_claims_no_utilisation() -> None:
    metrics = rank().step(batch())
    assert metrics["policy/tokens_per_second"] > 0.0
    assert 0.01 < metrics["policy/peak_memory_gib"] < 100.0
    assert metrics["policy/response_length"] == pytest.approx(sum(5 + 5 * i for i in range(7)) / 7)
    assert "policy/mfu" not in metrics


def test_scoring_by_another_policy_is_a_third_more() -> None:
    def flops(**algorithm: object) -> float:
        spec = AlgorithmSpec.model_validate(algorithm)
        return LearnerRank(tiny_model(), LearnerOptions(algorithm=spec)).step(batch())[
            "policy/flops"
        ]

    assert flops(use_kl_loss=True) == pytest.approx(4 / 3 * flops())


def test_the_clock_is_read_when_the_device_has_done_the_last_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = rank()
    learner.step(batch())
    seen: list[str] = []

    def noted(owner: object, name: str, what: str) -> None:
        act = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda: (seen.append(what), act())[1])

    noted(learner._optimizer, "step", "update")
    noted(learner._ranks, "wait", "wait")
    noted(time, "perf_counter", "clock")
    learner.step(batch())
    last = len(seen) - 1 - seen[::-1].index("update")
    assert seen[last:] == ["update", "wait", "clock"]


def test_flops_count_causal_pairs_and_the_head_of_actions_alone() -> None:
    config = tiny_config()
    num_parameters = sum(each.numel() for each in tiny_model().parameters())
    micro = pack_single(IDS, device=torch.device("cpu"))
    head = 64 * 32
    attention = 12 * 2 * 32 * (39 * 40 / 2)
    expected = 6 * (num_parameters - head) * 39 + 6 * head * 39 + attention
    assert train_flops(config, micro, num_parameters=num_parameters) == expected
    for recompute in (False, True):
        learner = rank(activation_checkpointing=recompute)
        assert learner._backward(micro).flops == expected


def test_ranks_share_rollouts_by_their_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long one has two fifths of the tokens, and more than half of the work."""
    learner, rollouts = rank(), lone(4000, *[100] * 60)
    monkeypatch.setattr(Ranks, "data_ranks", (0, 2))
    lengths = [
        n
        for micro in learner._pack(rollouts)
        for g in micro.prefix_groups
        for n in g.branch_lengths
    ]
    assert lengths == [3999]


def test_under_adapters_frozen_weights_have_no_gradient_to_count() -> None:
    num_parameters = sum(each.numel() for each in tiny_model().parameters())
    micro = pack_single(IDS, device=torch.device("cpu"))
    # Rank 4 times (inputs + outputs): q, k, v, o, gate, up, down of each of two layers.
    adapters = 2 * 4 * (64 + 48 + 48 + 64 + 96 + 96 + 96)
    attention = 12 * 2 * 32 * (39 * 40 / 2)
    expected = 4 * num_parameters * 39 + 6 * adapters * 39 + attention
    assert rank(lora={"rank": 4, "alpha": 8})._backward(micro).flops == expected


def test_another_rank_object_starts_no_thread() -> None:
    """A gloo group's threads wake up all the time until somebody destroys it."""
    LearnerRank(tiny_model())
    num_threads = len(list(Path("/proc/self/task").iterdir()))
    LearnerRank(tiny_model())
    assert len(list(Path("/proc/self/task").iterdir())) <= num_threads


def test_a_process_is_one_rank_of_one_world() -> None:
    rank()
    with pytest.raises(LearnerError, match="rank 0 of 1, not 1 of 2"):
        LearnerRank(tiny_model(), world=RankGroup(rank=1, size=2, init_method="file:///none"))
