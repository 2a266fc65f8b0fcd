"""Linear attention over packed prefix groups is that over each sequence by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.families import VOCAB, family_model
from tests.trainer.fixtures.forked import run_ranks
from tests.trainer.fixtures.tiny import reference_logprobs
from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.errors import SpecError
from trainer.inputs.model.families.delta_rule import DeltaInputs, delta_rule, delta_step
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.context.group import ContextGroup
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.policy import PolicyModule
from trainer.learners.model.sharding import RankGroup, Ranks, named_parameters, shard
from trainer.learners.packing.packing import MicroBatch, PrefixGroup, pack_single
from trainer.learners.rank import LearnerRank
from trainer.learners.recurrent.delta_net import Decay
from trainer.learners.recurrent.rule import why_no_kernels
from trainer.weights.chunks import WeightChunk

DEADLINE_S = 60.0
GROUPS = ((70, (17, 90, 1, 33, 0)), (2, (5,)), (40, ()), (1, (3, 2)), (131, (2, 70)))
"""Prompts and branches: longer and shorter than a chunk and than the convolution; one is empty,
one alone, and one prompt has none."""


def hybrid(seed: int = 0) -> CausalLM:
    return family_model("qwen3_5_text", seed=seed)


def ids(length: int, seed: int) -> list[int]:
    drawn: list[int] = torch.randint(
        0, VOCAB, (length,), generator=torch.manual_seed(seed)
    ).tolist()
    return drawn


def packed() -> tuple[MicroBatch, list[list[int]], list[list[int]]]:
    """A stream of all groups that scores every token; each sequence, and its scores' places."""
    stream: list[int] = []
    positions: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    sequences: list[list[int]] = []
    places: list[list[int]] = []
    for prompt_length, branches in GROUPS:
        start = len(stream)
        prompt = ids(prompt_length, seed=start)
        stream += prompt
        positions += range(prompt_length)
        for length in branches or (0,):
            branch, first = ids(length + 1, seed=7 * len(stream) + length), len(stream)
            stream += branch[:-1]
            positions += range(prompt_length, prompt_length + length)
            path = [*range(start, start + prompt_length), *range(first, first + length)]
            whole = prompt + branch
            places.append([*range(len(sources), len(sources) + len(path))])
            sources += path
            targets += whole[1:]
            sequences.append(whole)
    zeros = torch.zeros(len(sources))
    micro = MicroBatch(
        token_ids_N=torch.tensor(stream),
        positions_N=torch.tensor(positions),
        prefix_groups=tuple(
            PrefixGroup(prompt_length=prompt, branch_lengths=branches)
            for prompt, branches in GROUPS
        ),
        sources_A=torch.tensor(sources),
        targets_A=torch.tensor(targets),
        temperatures_A=torch.ones(len(sources)),
        actions=ActionTokens(
            behaviour_logprobs_A=zeros,
            advantages_A=zeros,
            weights_A=zeros,
            sequences_A=torch.zeros(len(sources), dtype=torch.int64),
        ),
    )
    return micro, sequences, places


def scored(model: Any, sequence: Sequence[int]) -> torch.Tensor:
    tokens = torch.tensor([sequence])
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1]
    picked: torch.Tensor = logits.log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)
    return picked


@pytest.mark.parametrize("recompute", [False, True])
def test_a_packed_stream_has_the_log_probs_and_gradients_of_its_sequences(
    *, recompute: bool
) -> None:
    micro, sequences, places = packed()
    policy = PolicyModule(hybrid(), chunk_tokens=64)
    shard(policy, Ranks(RankGroup()), dtype=torch.float32, recompute=recompute)
    found, _ = policy(micro)
    plain = hybrid()
    expected = [scored(plain, each) for each in sequences]
    for at, each in zip(places, expected, strict=True):
        torch.testing.assert_close(found[at], each, atol=1e-5, rtol=1e-6)
    weights = torch.randn(len(found), generator=torch.manual_seed(5))
    torch.autograd.backward((found * weights).sum())
    total = sum(
        ((each * weights[at]).sum() for at, each in zip(places, expected, strict=True)),
        torch.zeros(()),
    )
    torch.autograd.backward(total)
    own = named_parameters(policy)
    for name, parameter in plain.named_parameters():
        gradient = own[name].grad
        assert gradient is not None
        assert parameter.grad is not None
        gap = gradient.full_tensor() - parameter.grad  # type: ignore[attr-defined]
        assert float(gap.norm() / parameter.grad.norm()) < 2e-4, name


def test_one_sequence_is_that_of_transformers() -> None:
    tokens = ids(150, seed=9)
    policy = PolicyModule(hybrid(), chunk_tokens=64)
    with torch.no_grad():
        found, _ = policy(pack_single(tokens, device=torch.device("cpu")))
    torch.testing.assert_close(
        found,
        reference_logprobs(hybrid(), tokens),  # type: ignore[arg-type]
        atol=1e-5,
        rtol=1e-6,
    )


def test_the_rule_in_chunks_is_the_rule_token_by_token() -> None:
    drawn = torch.manual_seed(2)
    inputs = DeltaInputs(
        query=torch.randn(2, 150, 3, 16, generator=drawn),
        key=torch.randn(2, 150, 3, 16, generator=drawn),
        value=torch.randn(2, 150, 3, 8, generator=drawn),
        decay=-torch.rand(2, 150, 3, generator=drawn),
        beta=torch.rand(2, 150, 3, generator=drawn),
    )
    state = torch.randn(2, 3, 16, 8, generator=drawn)
    outputs, last = delta_rule(inputs, state)
    for at in range(150):
        one = DeltaInputs(
            query=inputs.query[:, at],
            key=inputs.key[:, at],
            value=inputs.value[:, at],
            decay=inputs.decay[:, at],
            beta=inputs.beta[:, at],
        )
        output, state = delta_step(one, state)
        torch.testing.assert_close(outputs[:, at], output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last, state, atol=1e-5, rtol=1e-5)


def test_what_a_state_forgets_is_computed_and_sent_in_float32_beside_bfloat16() -> None:
    model = hybrid()
    exact = {
        name: parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if name.endswith(("A_log", "dt_bias"))
    }
    options = LearnerOptions(learner=LearnerSpec(policy_dtype="bfloat16"))
    rank = LearnerRank(model, options)
    seen = []
    layer = next(each for each in rank._models.policy.modules() if isinstance(each, Decay))
    layer.register_forward_hook(lambda module, _, __: seen.append(module.A_log.detach().clone()))
    rank.logprobs(ids(20, seed=1))
    assert torch.equal(seen[0], exact["model.layers.0.linear_attn.A_log"])
    weights = rank.weights()
    assert {name for name, each in weights.items() if each.dtype is torch.float32} == set(exact)
    assert all(torch.equal(weights[name], each) for name, each in exact.items())
    chunks: tuple[WeightChunk, ...] = rank.sender.chunks(0).chunks
    assert [{each.dtype for each in chunk} for chunk in chunks] == [{"bfloat16"}, {"float32"}]
    assert {each.name for each in chunks[1]} == set(exact)
    for chunk in chunks:
        rank.sender.send(chunk)
    assert rank.sender.digests().digests.keys() == weights.keys()


def test_ranks_that_share_a_stream_are_refused_with_a_sentence() -> None:
    # Refused before any of them speaks to another.
    group = ContextGroup(rank=0, size=2, processes=None)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="token to token: set it to 1"):
        PolicyModule(hybrid(), chunk_tokens=64, context_group=group)


def test_on_a_gpu_the_kernels_are_asked_for_by_name() -> None:
    assert why_no_kernels(torch.device("cpu")) is None
    assert "flash-linear-attention" in str(why_no_kernels(torch.device("cuda")))


def batch(step: int) -> Batch:
    """Three prompts with rollouts of several lengths, more than one rank's share each."""
    made = []
    for number in range(7):
        prompt = ids(20 + 30 * (number % 3), seed=100 * step + number % 3)
        response = ids(5 + 11 * number, seed=1000 + 10 * step + number)
        tokens = tuple(prompt + response)
        made.append(
            TrainingSequence(
                token_ids=tokens,
                action_mask=(False,) * len(prompt) + (True,) * len(response),
                logprobs=(0.0,) * len(prompt) + (-6.0,) * len(response),
                prompt_length=len(prompt),
                advantage=(-1.0) ** number * (0.4 + 0.1 * number),
                temperature=1.0,
            )
        )
    return Batch(mini_batches=(tuple(made),))


def new_rank(world: RankGroup | None = None, seed: int = 0) -> LearnerRank:
    spec = LearnerSpec(max_micro_tokens=160, activation_checkpointing=world is not None)
    return LearnerRank(
        hybrid(seed), LearnerOptions(optimizer=OptimizerSpec(lr=1e-3), learner=spec), world
    )


def _play(index: int, directory: str) -> None:
    torch.set_num_threads(1)
    path = Path(directory)
    meeting = f"file://{path}/meeting"
    rank = new_rank(RankGroup(rank=index, size=2, init_method=meeting, timeout_s=DEADLINE_S))
    norms = [rank.step(batch(step))["policy/grad_norm"] for step in range(3)]
    rank.save(path / "saved")
    rank.step(batch(3))
    rank.write_weights(path / "two.safetensors")
    if index == 0:
        (path / "norms.json").write_text(json.dumps(norms))
    torch.distributed.destroy_process_group()


@pytest.mark.invariant("one rank and two learn the same from a hybrid's states")
def test_two_ranks_learn_what_one_does_and_one_goes_on_from_both(tmp_path: Path) -> None:
    run_ranks(_play, (str(tmp_path),), size=2, deadline_s=DEADLINE_S)
    one = new_rank()
    norms = [one.step(batch(step))["policy/grad_norm"] for step in range(3)]
    assert json.loads((tmp_path / "norms.json").read_text()) == pytest.approx(norms, rel=1e-5)
    one.step(batch(3))
    resumed = new_rank(seed=1)
    resumed.load(tmp_path / "saved")
    resumed.step(batch(3))
    two = load_file(tmp_path / "two.safetensors")
    for rank in (one, resumed):
        weights = rank.weights()
        assert weights.keys() == two.keys()
        total = sum(each.square().sum() for each in two.values())
        gap = sum((weights[name] - each).square().sum() for name, each in two.items())
        assert float((gap / total).sqrt()) < 1e-5
