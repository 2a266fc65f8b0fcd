"""What a Tinker server has no call for is refused when the spec is submitted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec

PINNED = "hf:Qwen/Qwen3-8B@" + "0123456789" * 4
LOCAL = {"base_url": "http://127.0.0.1:8730"}


def spec(**sections: Any) -> RunSpec:
    given: dict[str, Any] = {
        "backend": {"type": "tinker", "tinker": LOCAL | sections.pop("tinker", {})},
        "optimizer": {"max_grad_norm": None} | sections.pop("optimizer", {}),
    }
    return make_spec(**given | sections)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": {"max_grad_norm": 1.0}}, "set optimizer.max_grad_norm to null"),
    ({"algorithm": {"use_kl_loss": True}}, "set algorithm.use_kl_loss to false"),
    ({"algorithm": {"policy_loss_type": "dual_clip"}}, "to regular or cispo"),
    (
        {
            "algorithm": {
                "policy_loss_type": "gspo",
                "loss_reduction": "sequence_mean",
                "eps_clip_low": 3e-4,
                "eps_clip_high": 4e-4,
            }
        },
        "no loss for policy_loss_type gspo",
    ),
    (
        {"algorithm": {"off_policy_correction": {"tis_ratio_type": "token"}}},
        "leave algorithm.off_policy_correction out",
    ),
    (
        {"algorithm": {"off_policy_correction": {"sequence_mask_metric": "geometric"}}},
        "no weights or masks for rollouts of another policy",
    ),
    (
        {"model": {"rope": {"factor": 2.0, "original_max_position_embeddings": 1024}}},
        "model.rope (YaRN) has no effect: leave it out",
    ),
    ({"kind": "probe"}, "a probe samples on a runner: set backend.type to runner"),
    ({"learner": {"lora": {}}}, "set tinker.lora_rank and leave learner.lora out"),
    ({"learner": {"policy_dtype": "bfloat16"}}, "learner.policy_dtype has no effect"),
    ({"engine": {"type": "torch"}}, "engine.type has no effect: leave it out"),
    ({"engine": {"kv_cache_gib": 4}}, "engine.kv_cache_gib has no effect"),
    ({"placement": {"type": "ray"}}, "placement.type has no effect: leave it out"),
    ({"placement": {"learner_ranks": 2}}, "placement.learner_ranks has no effect"),
    ({"rollout": {"temperature": 0.8}}, "rollout.temperature is 0.8: set it"),
    (
        {"environment": {"overrides": {"booking": {"temperature": 1.2}}}},
        "environment.overrides.booking.temperature is 1.2: set it",
    ),
    ({"tinker": {"call_timeout_s": 1500}}, "must be smaller than schedule.step_timeout_s (1500)"),
    ({"tinker": {"train_attn": False, "train_mlp": False}}, "nothing would be trained"),
    ({"tinker": {"lora_rank": 0}}, "greater than or equal to 1"),
    ({"tinker": {"base_url": "http://key@host"}}, "should match pattern"),
    (
        {"experimental": True, "tinker": {"base_url": "http://tinker.example"}},
        "the runner's key travels over https only: use an address that begins with https",
    ),
    (
        {"tinker": {"base_url": "https://tinker.example"}},
        "backend.tinker.base_url outside the runner's machine was never run: set experimental",
    ),
    ({"model": {"source": "/models/x"}}, "set backend.tinker.base_model to the server's name"),
    (
        {"model": {"source": PINNED}, "tinker": {"base_model": "Qwen/Qwen3-32B"}},
        "names the tokenizer of another model: name the same model in both",
    ),
    (
        {"tinker": {"base_model": "Qwen/Qwen3-8B"}},
        "'builtin:tiny-qwen3-a' names the tokenizer of another model",
    ),
]


@pytest.mark.parametrize(("sections", "said"), REFUSED, ids=[each for _, each in REFUSED])
def test_what_it_cannot_do_gets_a_sentence_that_says_what_to_change(
    sections: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        spec(**sections)


def test_a_deterministic_run_is_refused() -> None:
    with pytest.raises(ValidationError, match="leave deterministic out"):
        spec(
            deterministic=True,
            engine={"type": "torch"},
            placement={"type": "inline"},
            eval={"decodings": [{"name": "greedy", "temperature": 0.0}]},
        )


def test_what_it_can_do_is_taken() -> None:
    taken = spec(
        algorithm={
            "policy_loss_type": "cispo",
            "loss_reduction": "seq_mean_token_sum_norm",
            "step_wise": True,
            "apply_overlong_filtering": True,
            "dynamic_sampling": {"type": "filter"},
        },
        optimizer={"weight_decay": 0.1, "lr_scheduler": "cosine"},
        placement={"type": "inline"},
        schedule={
            "total_steps": 3,
            "train_batch_size": 2,
            "mini_batch_size": 1,
            "max_staleness_steps": 2,
            "lr_warmup_steps": 2,
        },
    )
    assert taken.backend.tinker_server is not None
    assert RunSpec.model_validate(taken.model_dump(mode="json")) == taken


def test_an_evaluation_may_sample_at_any_temperature() -> None:
    decodings = [{"name": "hot", "temperature": 1.5, "top_p": 0.9}]
    assert spec(kind="eval", rollout={"temperature": 0.8}, eval={"decodings": decodings})


def test_the_servers_name_of_the_model_is_that_of_the_hub() -> None:
    for name in (None, "Qwen/Qwen3-8B", "Qwen/Qwen3-8B:32k", "Qwen/Qwen3-8B/long"):
        tinker = spec(model={"source": PINNED}, tinker={"base_model": name}).backend.tinker_server
        assert tinker is not None
        assert tinker.model_for(PINNED) == (name or "Qwen/Qwen3-8B")
    kimi = spec(model={"source": "/kimi"}, tinker={"base_model": "moonshotai/Kimi-K2-Thinking"})
    assert kimi.backend.tinker is not None
    assert kimi.backend.tinker.model_for("/kimi") == "moonshotai/Kimi-K2-Thinking"


def test_a_server_that_nobody_asks_is_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"set backend\.type to tinker or leave the section out"
    ):
        make_spec(backend={"tinker": LOCAL})
    assert make_spec().backend.tinker_server is None
