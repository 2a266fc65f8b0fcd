"""The other families on a GPU: are experts and linear attention right?"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu.right.resuming import resumes
from benchmarks.gpu.setting import Cases, Figures, Setting, gap
from hillclimb.hardware.model.published import KNOWN
from tests.trainer.fixtures.families import TYPES, VOCAB, family_model
from trainer.algo.loss.objective import policy_streams
from trainer.algo.sequences import Batch
from trainer.inputs.model.families.delta_rule import DeltaInputs
from trainer.inputs.model.families.registry import family_of
from trainer.learners.model.kernels.fused import use_fused_kernels
from trainer.learners.model.models import LearnerOptions, logprobs
from trainer.learners.model.policy import PolicyModule
from trainer.learners.model.sharding import RankGroup
from trainer.learners.packing.packing import PrefixGroup, micro_batches
from trainer.learners.rank import LearnerRank
from trainer.learners.recurrent import rule
from trainer.learners.recurrent.layout import RecurrentLayout

FLOAT32_GAP = 1e-3
"""Of log-probs on the device from those on the CPU, both in float32."""
KERNEL_GAP = 0.02
"""Of fla's kernels in bfloat16 from plain torch in float32, over the largest value."""
BFLOAT16_GAP = 0.3
"""Of log-probs on the device in bfloat16 from those of transformers in float32, on average: these
models' scores spread far."""
DELTA_HEADS = {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
"""Those of Qwen3.5-9B: fla's kernels search the fastest form for every number of heads."""


def families(setting: Setting) -> Cases:
    """A small model of each family: log-probs as on the CPU; step, save and resume bit for bit."""
    device = torch.device(setting.device)
    batches = [replace(setting, vocab_size=VOCAB).batch(192, seed=seed) for seed in range(2)]
    # The last ones are compiled longest: the time of the block may end before the others.
    for model_type in reversed(TYPES):
        linear = family_of(family_model(model_type).config).has_linear_attention
        if linear and (why := rule.why_no_kernels(device)):
            yield model_type, {"skipped": why}
            continue
        model = partial(family_model, model_type, **(DELTA_HEADS if linear else {}))
        rank = LearnerRank(
            model(), LearnerOptions(learner=setting.learner()), RankGroup(device=setting.device)
        )
        exact = _logprobs(PolicyModule(model(), chunk_tokens=1024), batches[0], "cpu")
        rounded = _logprobs(rank._models.policy, batches[0], setting.device)  # noqa: SLF001
        mean = float((rounded - exact).abs().mean())
        figures: Figures = {"bfloat16_gap": mean, "is_near": mean < BFLOAT16_GAP}
        if not linear:
            there = PolicyModule(model(), chunk_tokens=1024).to(device)
            use_fused_kernels(there.causal_lm, device)
            largest = float((_logprobs(there, batches[0], setting.device) - exact).abs().max())
            figures |= {"largest": largest, "is_close": largest < FLOAT32_GAP}
        with tempfile.TemporaryDirectory() as folder:
            figures |= resumes(rank, batches, Path(folder))
        yield model_type, figures


def _logprobs(policy: PolicyModule, batch: Batch, device: str) -> torch.Tensor:
    """Log-probs of the batch's actions in one packed pass."""
    (sequences,) = batch.mini_batches
    streams = policy_streams(sequences, (1.0,) * len(sequences))
    (micro,) = micro_batches(sequences, streams, max_tokens=10**9, device=torch.device(device))
    return logprobs(policy, micro).cpu()


def delta_kernels(setting: Setting) -> Cases:
    """The delta rule of Qwen3.5-9B over prompts and branches: fla's kernels against plain torch."""
    device = torch.device(setting.device)
    if why := rule.why_no_kernels(device):
        yield "rule", {"skipped": why}
        return
    linear = KNOWN["Qwen3.5-9B"].linear
    assert linear is not None
    unit = setting.size(256, 8)
    groups = (
        PrefixGroup(prompt_length=5 * unit + 3, branch_lengths=(unit, 3 * unit + 1, 0, 7)),
        PrefixGroup(prompt_length=2 * unit, branch_lengths=(unit + 5,)),
        PrefixGroup(prompt_length=unit + 1, branch_lengths=(2 * unit, unit)),
    )
    tokens = sum(group.num_tokens for group in groups)
    layout = RecurrentLayout.of(groups, linear.width, device)
    exact = _inputs(tokens, linear.value_heads, linear.key_dim, device)
    direction = torch.randn(tokens, linear.value_heads, linear.value_dim, device=device)
    if device.type == "cpu":
        yield "rule", {"skipped": "a CPU has plain torch alone"}
        return
    direction = torch.randn(tokens, linear.value_heads, linear.value_dim, device=device)
    expected, true = _through(rule.in_plain_torch, exact, layout, direction)
    rounded = {
        name: x.to(x.dtype if name == "decay" else torch.bfloat16) for name, x in exact.items()
    }
    output, found = _through(rule.by_kernels, rounded, layout, direction)
    figures: Figures = {"output_gap": gap(output, expected)}
    figures |= {f"gradient_{part}_gap": gap(found[part], true[part]) for part in true}
    yield "rule", {**figures, "is_close": max(figures.values()) < KERNEL_GAP}


def _inputs(tokens: int, heads: int, size: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Inputs of the rule, [N, H, ...] float32; states remember tens of tokens."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, tokens, heads, size, device=device)
    return {
        "query": query,
        "key": key,
        "value": value,
        "decay": -0.2 * torch.rand(tokens, heads, device=device),
        "beta": torch.rand(tokens, heads, device=device),
    }


def _through(
    apply: rule.Rule,
    parts: dict[str, torch.Tensor],
    layout: RecurrentLayout,
    direction: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the output [N, H, V] and the gradients of its product with `direction`."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in parts.items()}
    output = rule.mixed(DeltaInputs(**leaves), layout, apply)
    gradients = torch.autograd.grad((output.float() * direction).sum(), tuple(leaves.values()))
    return output, dict(zip(leaves, gradients, strict=True))
