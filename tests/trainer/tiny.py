"""Small random Qwen3 models and made-up rollouts for tests; nothing here is trained."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.contract.outcomes import Outcome, OutcomeStatus, StopReason
from trainer.types import Group, Task, Trajectory

VOCAB = 64


def tiny_config(*, tied: bool = True, layers: int = 2) -> Qwen3Config:
    """Hidden size 32, 4 query and 2 key/value heads, 256 positions."""
    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def tiny_model(*, seed: int = 0, tied: bool = True) -> Qwen3ForCausalLM:
    """A random model whose next-token distributions are far from uniform."""
    torch.manual_seed(seed)
    model: Qwen3ForCausalLM = Qwen3ForCausalLM(tiny_config(tied=tied))  # type: ignore[no-untyped-call]
    model.train(mode=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def reference_logprobs(
    model: Qwen3ForCausalLM, token_ids: list[int], *, temperature: float = 1.0
) -> torch.Tensor:
    """[T-1] log-probs by transformers' own full-sequence forward."""
    ids = torch.tensor([token_ids])
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0, :-1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, 1:].unsqueeze(1)).squeeze(1)


def random_ids(length: int, *, seed: int) -> list[int]:
    """Token ids drawn uniformly."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
    return ids


def task(key: str = "booking-1", env_key: str = "booking") -> Task:
    """A task with nothing in it but names."""
    return Task(key=key, env_key=env_key, prompt="", template="", difficulty=1)


def trajectory(
    reward: float | None,
    *,
    of: Task,
    sample_index: int = 0,
    response: tuple[int, ...] = (5, 6, 7),
    stop: StopReason = StopReason.DONE,
) -> Trajectory:
    """Prompt of 4 tokens, then `response`, all of it sampled at log-prob -1."""
    graded = reward is not None
    prompt = (1, 2, 3, 4)
    return Trajectory(
        task=of,
        token_ids=prompt + response,
        action_mask=(False,) * len(prompt) + (True,) * len(response),
        logprobs=(0.0,) * len(prompt) + (-1.0,) * len(response),
        weight_versions=(-1,) * len(prompt) + (0,) * len(response),
        prompt_length=len(prompt),
        turns=(),
        stop_reason=stop if graded else StopReason.INFRA_ERROR,
        outcome=Outcome(status=OutcomeStatus.GRADED, score=reward)
        if graded
        else Outcome(status=OutcomeStatus.INFRA_ERROR, reason="env_unavailable"),
        rollout_id=f"{of.key}-{sample_index}",
        sample_index=sample_index,
    )


def group(rewards: list[float | None], *, key: str = "booking-1", env: str = "booking") -> Group:
    """One rollout per reward; the response tells the rollouts apart."""
    of = task(key, env)
    return Group(
        task=of,
        trajectories=tuple(
            trajectory(reward, of=of, sample_index=index, response=(10 + index, 7))
            for index, reward in enumerate(rewards)
        ),
    )
