"""Replayed routes: the experts of the engine compute a token in the learner, by its own weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.families import VOCAB, family_model
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.errors import LearnerError
from trainer.inputs.model.families.registry import experts_of
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.types import Routes, SamplingParams

REPLAYED = "policy/experts/replayed_otherwise"


def ids(length: int, seed: int) -> list[int]:
    drawn: list[int] = torch.randint(
        0, VOCAB, (length,), generator=torch.manual_seed(seed)
    ).tolist()
    return drawn


def rank_of(*, replays: bool, recomputes: bool = False) -> LearnerRank:
    options = LearnerOptions(
        algorithm=AlgorithmSpec(use_kl_loss=True, kl_loss_coef=0.1),
        optimizer=OptimizerSpec(lr=1e-2),
        learner=LearnerSpec(routing_replay=replays, activation_checkpointing=recomputes),
    )
    return LearnerRank(family_model("qwen3_moe"), options)


def own_routes(rank: LearnerRank, token_ids: Sequence[int]) -> Routes:
    """The experts that the learner's routers choose, [tokens, layers, experts of a token]."""
    model: Any = rank._models.policy.causal_lm
    layout = experts_of(model.config)
    assert layout is not None
    routes = np.zeros((len(token_ids) - 1, model.config.num_hidden_layers, 2), dtype=np.uint8)

    def record(layer: int) -> Callable[..., None]:
        def hook(_module: object, _args: object, output: tuple[torch.Tensor, ...]) -> None:
            routes[:, layer] = output[2].numpy()

        return hook

    gates = [(index, model.model.layers[index].mlp.gate) for index in layout.layers]
    hooks = [gate.register_forward_hook(record(index)) for index, gate in gates]
    rank.logprobs(token_ids)
    for each in hooks:
        each.remove()
    return routes


def sequences(rank: LearnerRank) -> Iterator[TrainingSequence]:
    """Three rollouts of two prompts, with the routes that the learner itself would choose."""
    for number in range(3):
        tokens = tuple(ids(7, seed=number // 2) + ids(9 + number, seed=20 + number))
        drawn = len(tokens) - 7
        yield TrainingSequence(
            token_ids=tokens,
            action_mask=(False,) * 7 + (True,) * drawn,
            logprobs=(0.0,) * 7 + (-6.0,) * drawn,
            prompt_length=7,
            advantage=(1.0, -0.5, 0.7)[number],
            temperature=1.0,
            routes=own_routes(rank, tokens),
        )


def shifted(sequence: TrainingSequence) -> TrainingSequence:
    """The same sequence by other experts."""
    assert sequence.routes is not None
    return replace(sequence, routes=(sequence.routes + 1) % 8)


@pytest.mark.parametrize("recomputes", [False, True])
def test_replay_of_its_own_routes_changes_no_bit(*, recomputes: bool) -> None:
    replaying = rank_of(replays=True, recomputes=recomputes)
    plain = rank_of(replays=False, recomputes=recomputes)
    for _ in range(2):
        # The second step's routes are those of the changed weights.
        data = tuple(sequences(plain))
        without = tuple(replace(each, routes=None) for each in data)
        expected = plain.step(Batch(mini_batches=(without,)))
        metrics = replaying.step(Batch(mini_batches=(data,)))
        assert metrics[REPLAYED] == 0.0
        for name in ("policy/final_loss", "policy/grad_norm", "loss/avg_kl"):
            assert metrics[name] == expected[name], name
        weights = replaying.weights()
        for name, tensor in plain.weights().items():
            assert torch.equal(tensor, weights[name]), name


def test_other_routes_give_other_log_probs_and_still_teach_the_router() -> None:
    rank, plain = rank_of(replays=True), rank_of(replays=False)
    data = tuple(sequences(plain))
    other = rank.step(Batch(mini_batches=(tuple(map(shifted, data)),)))
    own = plain.step(Batch(mini_batches=(tuple(replace(each, routes=None) for each in data),)))
    gap = "policy/rollout_train_logprobs_abs_diff_mean"
    assert abs(other[gap] - own[gap]) > 1e-2
    assert other[REPLAYED] > 0.5
    assert REPLAYED not in own
    for index in (0, 2):
        gradient = rank._models.trained[f"model.layers.{index}.mlp.gate.weight"].grad
        assert gradient is not None
        assert float(gradient.full_tensor().abs().max()) > 0.0  # type: ignore[attr-defined]


def test_a_rollout_without_routes_is_not_learned_from_by_others() -> None:
    rank = rank_of(replays=True)
    data = tuple(replace(each, routes=None) for each in sequences(rank))
    with pytest.raises(LearnerError, match="routing_replay"):
        rank.step(Batch(mini_batches=(data,)))


async def test_the_torch_engine_returns_the_experts_of_every_turn_once() -> None:
    model = family_model("qwen3_moe")
    rank = rank_of(replays=True)
    options = TorchEngineOptions(num_sessions=4, max_length=256, records_routes=True)
    engine = TorchEngine(model.config, model.state_dict(), options=options)
    for session in "ab":
        tokens: list[int] = ids(30, seed=1)
        parts: list[Routes] = []
        for turn in range(3):
            tokens = [*tokens, *ids(5, seed=turn)] if turn else tokens
            known, seed = sum(map(len, parts)), turn + ord(session)
            params = SamplingParams(temperature=1.0, max_new_tokens=8, seed=seed, routes_from=known)
            sample = await engine.sample(tokens, params, session=session, prefix_key="g")
            assert sample.routes is not None
            assert len(sample.routes) == len(tokens) + 8 - 1 - known
            parts.append(sample.routes)
            tokens = [*tokens, *sample.token_ids]
        assert np.array_equal(np.concatenate(parts), own_routes(rank, tokens))
    plain = SamplingParams(temperature=1.0, max_new_tokens=2)
    assert (await engine.sample(ids(9, 3), plain, session="c", prefix_key="")).routes is None
    await engine.close()
