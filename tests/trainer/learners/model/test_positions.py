"""In bfloat16 a policy knows far positions as well as near ones: only weights are rounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.tiny import VOCAB, random_ids, reference_logprobs
from trainer.learners.model.models import LearnerOptions, Models, _frozen_copy, logprobs
from trainer.learners.model.policy import PolicyModule
from trainer.learners.packing.packing import pack_single
from trainer.learners.rank import LearnerRank

IDS = random_ids(1025, seed=1)
NEAR, FAR = slice(0, 256), slice(768, 1024)
KL = {"use_kl_loss": True, "kl_loss_coef": 1.0}
LORA = {"lora": {"rank": 4, "alpha": 8}}


def model(*, rounded: bool = False) -> Qwen3ForCausalLM:
    """Qwen3's own frequencies, whose rounding shows, and sharp attention; bfloat16 if rounded."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    made: Qwen3ForCausalLM = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                parameter.mul_(2.0)
            if rounded:
                parameter.copy_(parameter.bfloat16())
    return made.train(mode=False)


def models(algorithm: dict[str, Any], learner: dict[str, Any]) -> Models:
    options = LearnerOptions(
        algorithm=AlgorithmSpec.model_validate(algorithm),
        learner=LearnerSpec.model_validate({"policy_dtype": "bfloat16"} | learner),
    )
    return LearnerRank(model(), options)._models


def check(policy: PolicyModule) -> None:
    """Its frequencies are bit for bit the model's, and distance costs no precision."""
    frequencies = policy.causal_lm.model.rotary_emb.inv_freq
    assert frequencies.dtype is torch.float32
    assert torch.equal(frequencies, model().model.rotary_emb.inv_freq)
    found = logprobs(policy, pack_single(IDS, device=torch.device("cpu")))
    gaps = (found - reference_logprobs(model(rounded=True), IDS)).abs()
    # Measured 0.013 for both; with frequencies in bfloat16 it was 0.030 and 0.150.
    assert 0.0 < gaps[NEAR].mean() < 0.02
    assert gaps[FAR].mean() < 0.02


@pytest.mark.parametrize("learner", [{}, LORA], ids=["whole", "adapters"])
def test_the_policy_keeps_its_positions_in_bfloat16(learner: dict[str, Any]) -> None:
    check(models({}, learner).policy)


def test_the_reference_keeps_its_positions_and_is_the_policy_at_first() -> None:
    held = models(KL, {})
    assert held.reference is not None
    check(held.reference)
    micro = pack_single(IDS, device=torch.device("cpu"))
    torch.testing.assert_close(held.logprobs_of("start", micro), logprobs(held.policy, micro))


def test_a_reference_is_rounded_as_it_is_copied_and_shares_nothing() -> None:
    """A whole copy in float32 beside the model would be on every rank's host for a moment."""
    original = model()
    with CountsBytes() as made:
        frozen = _frozen_copy(original, torch.bfloat16)
    number = sum(each.numel() for each in original.parameters())
    assert made.num_bytes < 2.1 * number, "two bytes each"
    assert {each.dtype for each in frozen.parameters()} == {torch.bfloat16}
    assert not any(each.requires_grad for each in frozen.parameters())
    assert frozen.lm_head.weight is frozen.model.embed_tokens.weight
    starts = {each.data_ptr() for each in original.parameters()}
    assert starts.isdisjoint(each.data_ptr() for each in frozen.parameters())


class CountsBytes(TorchDispatchMode):
    """Adds up the bytes of all parameters and copies that torch makes."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(
        self, call: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = call(*args, **(kwargs or {}))
        if call.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.clone):
            self.num_bytes += result.numel() * result.element_size()
        return result
