"""The learner against plain transformers: same log-probs, same gradients, same files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import VOCAB, random_ids, reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch, sequence
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.errors import CheckpointError, NonFiniteUpdate
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions


def gradients(learner: InlineLearner) -> dict[str, torch.Tensor]:
    return {
        name: parameter.grad.full_tensor()
        for name, parameter in learner.rank._models.trained.items()
    }


def options(**settings: object) -> LearnerOptions:
    return LearnerOptions(
        **({"optimizer": OptimizerSpec(lr=1e-3, max_grad_norm=1e6)} | settings)  # type: ignore[arg-type]
    )


async def test_at_the_sampling_weights_log_probs_agree_and_nothing_is_clipped() -> None:
    learner = InlineLearner(tiny_model())
    metrics = await learner.step(batch(temperature=0.7))
    assert metrics["policy/rollout_train_logprobs_abs_diff_max"] < 1e-5
    assert metrics["policy/ppo_clip_ratio"] == 0.0
    assert metrics["policy/effective_sample_share"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["policy/num_action_tokens"] == sum(8 + 5 * i - 3 for i in range(7))


async def test_gradients_do_not_depend_on_how_the_mini_batch_is_cut() -> None:
    seen = []
    for max_tokens in (1, 60, 4096):
        learner = InlineLearner(
            tiny_model(), options(learner=LearnerSpec(max_micro_tokens=max_tokens))
        )
        await learner.step(batch())
        seen.append(gradients(learner))
    for other in seen[1:]:
        for name, gradient in seen[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "seq_mean_token_sum_norm"])
async def test_gradients_are_those_of_a_padded_loop_over_plain_transformers(reduction: str) -> None:
    algorithm = AlgorithmSpec.model_validate({"loss_reduction": reduction})
    learner = InlineLearner(tiny_model(), options(algorithm=algorithm, max_sequence_length=64))
    data = batch(temperature=0.8)
    await learner.step(data)

    model = tiny_model()
    sequences = data.mini_batches[0]
    total = sum(item.num_actions for item in sequences)
    loss = torch.zeros(())
    for item in sequences:
        ids = torch.tensor([item.token_ids])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1] / item.temperature
        logprobs = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        mask = torch.tensor(item.action_mask[1:])
        ratio = (logprobs - torch.tensor(item.logprobs[1:]))[mask].exp()
        share = {
            "token_mean": 1 / total,
            "sequence_mean": 1 / (len(sequences) * item.num_actions),
            "seq_mean_token_sum_norm": 1 / (len(sequences) * 64),
        }[reduction]
        loss = loss - (ratio * item.advantage).sum() * share
    torch.autograd.backward(loss)
    found = gradients(learner)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name], parameter.grad, atol=2e-6, rtol=1e-4)


async def test_the_log_prob_of_a_rewarded_token_rises_and_of_a_punished_one_falls() -> None:
    good = sequence(prompt=0, sample=1, length=8, advantage=1.0)
    bad = sequence(prompt=1, sample=2, length=8, advantage=-1.0)
    learner = InlineLearner(tiny_model(), options())

    async def total(item: TrainingSequence) -> float:
        scored = await learner.logprobs(item.token_ids)
        return float(scored[torch.tensor(item.action_mask[1:])].sum())

    before = await total(good), await total(bad)
    await learner.step(Batch(mini_batches=((good, bad),)))
    assert await total(good) > before[0]
    assert await total(bad) < before[1]


async def test_a_batch_without_sequences_changes_no_weight_but_counts_as_a_version() -> None:
    learner = InlineLearner(tiny_model())
    before = {name: tensor.clone() for name, tensor in learner.publish().weights.items()}
    metrics = await learner.step(Batch(mini_batches=()))
    after = learner.publish()
    assert metrics["policy/num_updates"] == 0.0
    assert after.version == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.weights.items())


async def test_a_non_finite_loss_is_refused_before_it_touches_the_weights() -> None:
    learner = InlineLearner(tiny_model())
    before = {name: tensor.clone() for name, tensor in learner.publish().weights.items()}
    poisoned = sequence(prompt=0, sample=0, length=8, advantage=math.nan)
    with pytest.raises(NonFiniteUpdate):
        await learner.step(Batch(mini_batches=((poisoned,),)))
    assert all(torch.equal(t, before[n]) for n, t in learner.publish().weights.items())


async def test_gradients_are_scaled_down_to_max_grad_norm() -> None:
    learner = InlineLearner(tiny_model(), options(optimizer=OptimizerSpec(max_grad_norm=1e-3)))
    metrics = await learner.step(batch())
    norm = torch.stack([g.norm() for g in gradients(learner).values()]).norm()
    assert metrics["policy/grad_norm"] > 1e-3
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


async def test_the_learning_rate_warms_up_over_optimizer_steps() -> None:
    learner = InlineLearner(tiny_model(), options(lr_warmup_steps=4))
    rates = [(await learner.step(batch()))["policy/policy_lr"] for _ in range(5)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])


async def test_adamw_takes_every_setting_of_the_spec() -> None:
    async def weights(**settings: object) -> torch.Tensor:
        spec = OptimizerSpec.model_validate(settings)
        learner = InlineLearner(tiny_model(), options(optimizer=spec))
        for _ in range(3):
            await learner.step(batch())
        return learner.publish().weights["model.layers.0.mlp.up_proj.weight"].clone()

    plain = await weights()
    for changed in ({"lr": 1e-4}, {"betas": (0.5, 0.9)}, {"eps": 1e-3}, {"weight_decay": 0.5}):
        assert not torch.equal(plain, await weights(**changed))


def test_published_weights_name_the_tied_head() -> None:
    weights = InlineLearner(tiny_model(tied=True)).publish().weights
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert not any(tensor.requires_grad for tensor in weights.values())


async def test_after_load_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    learner = InlineLearner(tiny_model(), options(lr_warmup_steps=5))
    await learner.step(batch())
    learner.save(tmp_path)
    await learner.step(batch())

    resumed = InlineLearner(tiny_model(seed=9), options(lr_warmup_steps=5))
    resumed.load(tmp_path)
    assert resumed.version == 1
    await resumed.step(batch())
    expected = learner.publish().weights
    assert all(torch.equal(t, expected[n]) for n, t in resumed.publish().weights.items())


async def test_after_load_the_optimizer_has_the_settings_of_the_spec(tmp_path: Path) -> None:
    learner = InlineLearner(tiny_model(), options())
    await learner.step(batch())
    learner.save(tmp_path)

    async def weights(**settings: object) -> torch.Tensor:
        spec = OptimizerSpec.model_validate(settings)
        resumed = InlineLearner(tiny_model(), options(optimizer=spec))
        resumed.load(tmp_path)
        await resumed.step(batch())
        return resumed.publish().weights["model.layers.0.mlp.up_proj.weight"].clone()

    plain = await weights()
    for changed in ({"lr": 1e-4}, {"betas": (0.5, 0.9)}, {"eps": 1e-3}, {"weight_decay": 0.5}):
        assert not torch.equal(plain, await weights(**changed))


async def test_a_rollout_of_one_token_is_learned_from() -> None:
    token_ids = random_ids(10, seed=3)
    logprob = reference_logprobs(tiny_model(), token_ids, temperature=1.0).tolist()[-1]
    one = TrainingSequence(
        token_ids=tuple(token_ids),
        action_mask=(False,) * 9 + (True,),
        logprobs=(0.0,) * 9 + (logprob,),
        prompt_length=9,
        advantage=1.0,
        temperature=1.0,
    )
    metrics = await InlineLearner(tiny_model(), options()).step(Batch(mini_batches=((one, one),)))
    assert metrics["policy/num_action_tokens"] == 2.0
    assert metrics["policy/rollout_train_logprobs_abs_diff_max"] < 1e-5


async def test_plain_transformers_loads_what_was_saved(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "tokenizer.json").write_text("{}")
    learner = InlineLearner(tiny_model(), options(tokenizer_dir=tmp_path / "source"))
    await learner.step(batch())
    learner.save(tmp_path / "saved")
    loaded = Qwen3ForCausalLM.from_pretrained(tmp_path / "saved" / "policy")
    ids = random_ids(20, seed=3)
    torch.testing.assert_close(
        reference_logprobs(loaded, ids), await learner.logprobs(ids), atol=1e-5, rtol=0
    )
    assert (tmp_path / "saved" / "policy" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize("damage", ["absent", "torn", "no shard", "another architecture"])
def test_a_damaged_checkpoint_is_named_as_such(tmp_path: Path, damage: str) -> None:
    model = tiny_model(tied=damage != "another architecture")
    InlineLearner(model).save(tmp_path)
    shard = tmp_path / "learner" / "rank-0.bin"
    if damage == "absent":
        (tmp_path / "learner" / "learner.json").unlink()
    elif damage == "torn":
        shard.write_bytes(shard.read_bytes()[:100])
    elif damage == "no shard":
        shard.unlink()
    with pytest.raises(CheckpointError, match="cannot load"):
        InlineLearner(tiny_model()).load(tmp_path)


async def test_entropy_is_that_of_the_action_tokens() -> None:
    item = sequence(prompt=0, sample=0, length=8, advantage=1.0)
    metrics = await InlineLearner(tiny_model()).step(Batch(mini_batches=((item,),)))
    with torch.no_grad():
        logits = tiny_model()(input_ids=torch.tensor([item.token_ids])).logits[0, :-1]
    logprobs = logits.log_softmax(-1)[torch.tensor(item.action_mask[1:])]
    expected = float(-(logprobs.exp() * logprobs).sum(-1).mean())
    assert metrics["policy/policy_entropy"] == pytest.approx(expected, rel=1e-4)
    assert 0.0 < expected < math.log(VOCAB)
