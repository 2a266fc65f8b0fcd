"""What the canary lets through is found: the bits of every tensor are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.tiny import VOCAB, tiny_config, tiny_model
from tests.trainer.weights.tampered import (
    Tampered,
    Weights,
    drifted,
    nothing_of,
    one_bit_off,
    stale,
    without,
)
from trainer.engines.canary import canary_gap, canary_tokens, canary_tolerance
from trainer.engines.torch.engine import TorchEngine
from trainer.errors import WeightSyncMismatch
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.weights.digests import WeightDigests, assert_same_weights, tensor_digest
from trainer.weights.file_system import FileSystemSync
from trainer.weights.local import InlineSync

NAME = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 7, 4_200_001])
def test_a_mark_is_of_the_bits_and_their_order(dtype: torch.dtype, size: int) -> None:
    tensor = torch.randn(size, generator=torch.manual_seed(size)).to(dtype)
    inside = torch.cat((torch.zeros(3, dtype=dtype), tensor))[3:]
    assert tensor_digest(inside) == tensor_digest(tensor), "wherever it is in memory"
    bits = tensor.view(torch.int16 if dtype is torch.bfloat16 else torch.int32)
    for place in {0, size // 2, size - 1} if size else set():
        bits[place] ^= 1
        assert tensor_digest(tensor) != tensor_digest(inside)
        bits[place] ^= 1
    assert tensor_digest(tensor) == tensor_digest(inside)
    assert size < 2 or tensor_digest(tensor.flip(0)) != tensor_digest(inside)


def test_a_mark_is_of_precision_and_shape_too() -> None:
    zeros = torch.zeros(4, 6)
    others = (zeros.T, zeros.bfloat16(), zeros[:3], -zeros)
    assert len({tensor_digest(each) for each in (zeros, *others)}) == 5
    assert tensor_digest(zeros).startswith("float32[4, 6] ")


def test_small_changes_of_all_values_do_not_cancel_out() -> None:
    around = [(0x3F800000 + ((n >> torch.arange(16)) & 1)).int() for n in range(1 << 12)]
    assert len({tensor_digest(bits.view(torch.float32)) for bits in around}) == 1 << 12


def test_a_message_names_the_tensors_and_the_version() -> None:
    sent = WeightDigests(3, {"a": "1", "b": "2"})
    assert_same_weights(sent, [sent])
    wrong = WeightDigests(2, {"a": "1", "c": "3"})
    said = "engine 1 .*: version 2 instead of 3, b did not arrive, c was not sent"
    with pytest.raises(WeightSyncMismatch, match=said):
        assert_same_weights(sent, [sent, wrong])
    many = WeightDigests(3, {str(number): "" for number in range(9)})
    with pytest.raises(WeightSyncMismatch, match=r"4 did not arrive and 4 more$"):
        assert_same_weights(many, [WeightDigests(3, {})])


def a_pair(dtype: str) -> tuple[InlineLearner, TorchEngine, Weights]:
    """A learner, an engine that still has other weights, and those by name."""
    spec = LearnerSpec(policy_dtype=dtype)  # type: ignore[arg-type]
    learner = InlineLearner(tiny_model(seed=1), LearnerOptions(learner=spec))
    old = dict(learner.publish().weights)
    engine = TorchEngine(tiny_config(), old)
    with torch.no_grad():
        for parameter in learner.rank._models.parameters.values():
            parameter.to_local().mul_(1 + 2**-7)
    learner.rank.version += 1
    return learner, engine, old


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda _: drifted(), "differs.* more$"),
        (lambda _: one_bit_off(NAME), f": {NAME} differs$"),
        (lambda _: without(NAME), f": {NAME} did not arrive$"),
        (lambda old: stale(NAME, old), f": {NAME} differs$"),
        (nothing_of, "differs.* more$"),
    ],
)
async def test_what_was_changed_on_its_way_to_the_engine_is_a_mismatch(
    dtype: str,
    tamper: Callable[[Weights], Callable[[Weights], None]],
    said: str,
    tmp_path: Path,
) -> None:
    learner, engine, old = a_pair(dtype)
    await FileSystemSync(learner, [engine], tmp_path / "w").sync()
    learner.rank.version += 1
    with pytest.raises(WeightSyncMismatch, match=said):
        await FileSystemSync(Tampered(learner, tamper(old)), [engine], tmp_path / "w").sync()


class Forgetful(TorchEngine):
    """Says that it has taken what it has not."""

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> WeightDigests:
        """Take nothing."""
        del weights
        return await super().update({}, version)


async def test_an_inline_engine_that_keeps_its_weights_is_found_where_the_canary_sees_nothing() -> (
    None
):
    learner = InlineLearner(tiny_model(seed=1))
    engine = Forgetful(tiny_config(), learner.publish().weights)
    with torch.no_grad():
        for parameter in learner.rank._models.parameters.values():
            parameter.to_local().add_(1e-6)
    tokens, allowed = canary_tokens(VOCAB), canary_tolerance("float32")
    assert await canary_gap(engine, learner, tokens) < allowed
    with pytest.raises(WeightSyncMismatch, match="did not arrive"):
        await InlineSync(learner, engine).sync()
    sound = TorchEngine(tiny_config(), tiny_model().state_dict())
    await InlineSync(learner, sound).sync()
