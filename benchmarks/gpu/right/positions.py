"""Positions beyond the trained ones under YaRN: packed, and by transformers alone."""

from __future__ import annotations

import torch

from benchmarks.gpu.setting import Cases, Setting, yarn
from hillclimb.spec.training.model import ModelSpec
from trainer.algo.loss.objective import policy_streams
from trainer.algo.sequences import TrainingSequence
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.model.models import logprobs
from trainer.learners.model.policy import PolicyModule
from trainer.learners.packing.packing import micro_batches


def far_positions(setting: Setting) -> Cases:
    """Log-probs of two rollouts in float32, behind a prompt twice as long as what was trained on.

    How far the model without YaRN is off shows that positions matter to these log-probs.
    """
    original = setting.size(2048, 64)
    prompt = 2 * original
    sequences = setting.family(prompt, (2 * original, original))

    streams = policy_streams(sequences, (1.0, 1.0))
    (micro,) = micro_batches(
        sequences, streams, max_tokens=10**9, device=torch.device(setting.device)
    )

    def plainly(rope: ModelSpec) -> torch.Tensor:
        model = _sharpened(setting.model(2, rope=rope))
        with torch.no_grad():
            return torch.cat([_far_logprobs(model, each) for each in micro.sequences])

    model = _sharpened(setting.model(2, rope=yarn(original)))
    packed = logprobs(PolicyModule(model, chunk_tokens=original), micro)
    del model
    gap = float((packed - plainly(yarn(original))).abs().max())
    unstretched = float((packed - plainly(ModelSpec())).abs().max())
    yield (
        "yarn",
        {
            "gap": gap,
            "gap_without_yarn": unstretched,
            "is_close": gap < unstretched / 100,
        },
    )


def _sharpened(model: CausalLM) -> CausalLM:
    """Make attention pick few tokens, so that positions show in the log-probs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                parameter.mul_(2.0)
    return model


def _far_logprobs(model: CausalLM, sequence: TrainingSequence) -> torch.Tensor:
    """Log-probs of what follows the prompt, by transformers' own forward pass."""
    prompt = sequence.prompt_length
    ids = torch.tensor([sequence.token_ids], device=model.device)
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[0, prompt - 1 :]
    parts = zip(torch.split(hidden, 1024), torch.split(ids[0, prompt:], 1024), strict=True)
    return torch.cat(
        [
            model.lm_head(part).log_softmax(-1).gather(1, wanted[:, None]).squeeze(1)
            for part, wanted in parts
        ]
    )
