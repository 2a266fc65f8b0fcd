"""Every family by plain transformers: what the torch engine draws, what the learner learns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from hillclimb.hardware.model.experts import ATTENTION
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.model import ModelSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.families import TYPES, VOCAB, family_model
from tests.trainer.fixtures.tiny import reference_logprobs
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.errors import EngineError, SpecError
from trainer.inputs.model.directory import count_parameters, load_config, load_policy
from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.families.registry import FAMILIES, check_supported, experts_of
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.types import SamplingParams

TARGETS = ("_proj.weight", ".in_proj_qkv.weight", ".in_proj_z.weight")

pytestmark = pytest.mark.parametrize("model_type", TYPES)


def ids(length: int, seed: int) -> list[int]:
    drawn: list[int] = torch.randint(
        0, VOCAB, (length,), generator=torch.manual_seed(seed)
    ).tolist()
    return drawn


def engine_of(model: CausalLM) -> TorchEngine:
    weights = dict(model.state_dict())
    options = TorchEngineOptions(num_sessions=4, max_length=256)
    return TorchEngine(model.config, weights, options=options)


async def conversation(engine: TorchEngine, number: int) -> tuple[list[int], dict[int, float]]:
    """Three turns with observations between; the log-probs of what was drawn, by position."""
    tokens, logprobs = ids(40, seed=number // 2), {}
    for turn in range(3):
        params = SamplingParams(temperature=1.0, max_new_tokens=9, seed=number)
        sample = await engine.sample(tokens, params, session=f"s{number}", prefix_key="g")
        logprobs |= dict(enumerate(sample.logprobs, start=len(tokens)))
        tokens = [*tokens, *sample.token_ids, *ids(5, seed=10 * number + turn)]
    engine.release(f"s{number}")
    return tokens, logprobs


async def test_the_torch_engine_draws_at_the_log_probs_of_transformers(model_type: str) -> None:
    model = family_model(model_type)
    engine = engine_of(model)
    played = await asyncio.gather(*(conversation(engine, number) for number in range(4)))
    await engine.close()
    for tokens, logprobs in played:
        reference = reference_logprobs(model, tokens)  # type: ignore[arg-type]
        gaps = [abs(float(reference[at - 1]) - value) for at, value in logprobs.items()]
        assert len(gaps) == 27
        assert max(gaps) < 1e-4


async def test_the_torch_engine_takes_no_weight_that_the_family_lacks(model_type: str) -> None:
    model = family_model(model_type)
    other = {"qwen2": "self_attn.q_norm.weight"}.get(model_type, "self_attn.q_proj.bias")
    weights = dict(model.state_dict()) | {f"model.layers.0.{other}": torch.zeros(64)}
    with pytest.raises(EngineError, match=other):
        TorchEngine(model.config, weights, options=TorchEngineOptions())


def sequences(model: CausalLM) -> tuple[TrainingSequence, ...]:
    """Two rollouts of each of two prompts, as the model would have drawn them."""
    made = []
    for number in range(4):
        prompt, response = ids(9, seed=number // 2), ids(12 + number, seed=50 + number)
        tokens = prompt + response
        drawn = reference_logprobs(model, tokens).tolist()  # type: ignore[arg-type]
        mask = [False] * 9 + [True] * 4 + [False] * 3 + [True] * (len(response) - 7)
        logprobs = (v if a else 0.0 for v, a in zip([0.0, *drawn], mask, strict=True))
        made.append(
            TrainingSequence(
                token_ids=tuple(tokens),
                action_mask=tuple(mask),
                logprobs=tuple(logprobs),
                prompt_length=9,
                advantage=(1.0, -0.7, 0.4, -1.2)[number],
                temperature=1.0,
            )
        )
    return tuple(made)


def learner_of(model: CausalLM, **settings: Any) -> InlineLearner:
    optimizer = OptimizerSpec(lr=1e-3, max_grad_norm=1e6)
    return InlineLearner(model, LearnerOptions(optimizer=optimizer, **settings))


async def test_gradients_of_shared_prompts_are_those_of_transformers(model_type: str) -> None:
    learner, model = learner_of(family_model(model_type)), family_model(model_type)
    data = sequences(model)
    await learner.step(Batch(mini_batches=(data,)))
    total = sum(item.num_actions for item in data)
    loss = torch.zeros(())
    for item in data:
        tokens = torch.tensor([item.token_ids])
        logits = model(input_ids=tokens, use_cache=False).logits[0, :-1]
        scored = logits.log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)
        mask = torch.tensor(item.action_mask[1:])
        ratio = (scored - torch.tensor(item.logprobs[1:]))[mask].exp()
        loss = loss - (ratio * item.advantage).sum() / total
    torch.autograd.backward(loss)
    trained = learner.rank._models.trained
    assert sorted(trained) == sorted(name for name, _ in model.named_parameters())
    for name, parameter in model.named_parameters():
        gradient = trained[name].grad
        assert gradient is not None
        assert parameter.grad is not None
        torch.testing.assert_close(gradient.full_tensor(), parameter.grad, atol=2e-6, rtol=2e-4)  # type: ignore[attr-defined]


async def test_a_saved_policy_is_transformers_own_and_goes_on_bit_for_bit(
    model_type: str, tmp_path: Path
) -> None:
    data = Batch(mini_batches=(sequences(family_model(model_type)),))
    learner = learner_of(family_model(model_type))
    await learner.step(data)
    learner.save(tmp_path)
    whole = await learner.step(data)
    again = learner_of(family_model(model_type, seed=1))
    again.load(tmp_path)
    resumed = await again.step(data)
    assert {k: v for k, v in whole.items() if k.startswith("policy/loss")} == {
        k: v for k, v in resumed.items() if k.startswith("policy/loss")
    }
    for name, tensor in learner.publish().weights.items():
        assert torch.equal(tensor, again.publish().weights[name]), name
    written = json.loads((tmp_path / "policy" / "config.json").read_text())
    family = next(each for each in FAMILIES if each.model_type == model_type)
    assert written["architectures"] == [family.architecture]
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "policy", dtype=torch.float32)
    loaded = load_policy(tmp_path / "policy")
    tokens = ids(60, seed=3)
    torch.testing.assert_close(
        reference_logprobs(plain, tokens),
        reference_logprobs(loaded, tokens),
        atol=0,
        rtol=0,  # type: ignore[arg-type]
    )


async def test_adapters_of_the_family_learn_and_merge(model_type: str) -> None:
    model = family_model(model_type)
    layers = {name for name, _ in model.named_parameters() if name.endswith(TARGETS)}
    targets = tuple({name.split(".")[-2]: None for name in layers})
    if experts_of(model.config) is not None:
        targets = ATTENTION
    lora = LearnerSpec.model_validate({"lora": {"rank": 4, "target_modules": targets}})
    learner = learner_of(family_model(model_type), learner=lora)
    before = learner.publish().weights
    await learner.step(Batch(mini_batches=(sequences(model),)))
    after = learner.publish().weights
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    ends = tuple(f"{target}.weight" for target in targets)
    assert changed == {name for name, _ in model.named_parameters() if name.endswith(ends)}


def test_an_adapter_for_a_layer_that_the_family_lacks_is_refused(model_type: str) -> None:
    if model_type.startswith("qwen3_5"):
        pytest.skip("the family has all layers that a spec can name")
    lora = LearnerSpec.model_validate({"lora": {"target_modules": ["q_proj", "in_proj_qkv"]}})
    with pytest.raises(SpecError, match="names in_proj_qkv, which"):
        learner_of(family_model(model_type), learner=lora)


def test_the_families_options_that_are_not_computed_are_refused(model_type: str) -> None:
    family = next(each for each in FAMILIES if each.model_type == model_type)
    for option in family.off:
        config = family_model(model_type).config
        setattr(config, option, 0.1 if option == "attention_dropout" else True)
        with pytest.raises(SpecError, match=option):
            check_supported(config)
    config = family_model(model_type).config
    config.hidden_act = "gelu"
    with pytest.raises(SpecError, match="gelu"):
        check_supported(config)


def test_a_directory_of_the_family_is_read_and_its_parameters_counted(
    model_type: str, tmp_path: Path
) -> None:
    model = family_model(model_type)
    model.save_pretrained(tmp_path)
    config = load_config(tmp_path, ModelSpec())
    assert count_parameters(config) == sum(each.numel() for each in model.parameters())
