"""Block A: are the numbers right? Nothing else counts before."""

from __future__ import annotations

import inspect
import math
import platform
import tempfile
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.gpu.attending import Way, attend, stream, ways
from benchmarks.gpu.right.families import delta_kernels, families
from benchmarks.gpu.right.positions import far_positions
from benchmarks.gpu.right.resuming import is_same, resumes, state_of
from benchmarks.gpu.right.transfer import broadcast, chunks, ipc
from benchmarks.gpu.setting import Cases, Check, Figures, Setting, gap
from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.sequences import Batch
from trainer.errors import NonFiniteUpdate
from trainer.learners.model.export import gathered
from trainer.learners.model.kernels import flash4
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.packing.packing import PrefixGroup
from trainer.learners.rank import LearnerRank
from trainer.weights.digests import tensor_digest

PACKAGES = (
    *("transformers", "peft", "safetensors", "triton", "vllm", "flash-attn-3", "pydantic"),
    *("liger-kernel", "flash-linear-attention", "nvidia-cutlass-dsl"),
)
VARIANTS = {
    "optimizer_moments": ("bfloat16", "int8"),
    "keep_activations": ("attention", "matmuls"),
}
LARGEST_GAP = 0.02
"""Of outputs and gradients in bfloat16 from those in float32, over the largest of the latter."""


def image(setting: Setting) -> Cases:
    """What is there: versions, the card, and what torch would choose by itself."""
    found: Figures = {"torch": torch.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    found["flash4"] = flash4.is_there()
    if setting.device != "cpu":
        properties = torch.cuda.get_device_properties(setting.device)
        found |= {
            "gpu": properties.name,
            "gpu_gib": round(properties.total_memory / 1024**3, 1),
            "capability": list(torch.cuda.get_device_capability(setting.device)),
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "prefers_cudnn": torch.backends.cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        }
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - an old torch has none

    found["varlen"] = list(inspect.signature(varlen_attn).parameters)
    yield "versions", found


def digests(setting: Setting) -> Cases:
    """A tensor has the same digest on the CPU and on the device, odd sizes included."""
    for dtype in (torch.bfloat16, torch.float32):
        for shape in ((7,), (1, 3, 5), (setting.size(1 << 23, 1 << 12) + 3,)):
            tensor = torch.randn(shape).to(dtype)
            name = f"{str(dtype).removeprefix('torch.')}{list(shape)}"
            there = tensor.to(setting.device)
            yield name, {"is_same": tensor_digest(tensor) == tensor_digest(there)}


def packed_groups(unit: int) -> tuple[PrefixGroup, ...]:
    """Prompts with four branches, one of them empty, with one and with two."""
    return (
        PrefixGroup(prompt_length=5 * unit + 3, branch_lengths=(unit, 3 * unit + 1, 0, 7)),
        PrefixGroup(prompt_length=2 * unit, branch_lengths=(unit + 5,)),
        PrefixGroup(prompt_length=unit + 1, branch_lengths=(2 * unit, unit)),
    )


def attention(setting: Setting) -> Cases:
    """Outputs and gradients in bfloat16 against plain float32, by each way to compute them."""
    groups = packed_groups(setting.size(256, 8))
    num_tokens = sum(group.num_tokens for group in groups)
    plain = Way("plain")
    exact = stream(setting, num_tokens, torch.float32)
    expected = attend(setting, groups, exact, plain)
    direction = torch.randn_like(expected)
    torch.autograd.backward((expected * direction).sum())
    for way in ways(setting.device):
        rounded = stream(setting, num_tokens, torch.bfloat16)
        output = attend(setting, groups, rounded, way)
        with way.chosen():
            torch.autograd.backward((output.float() * direction).sum())
        gaps = {"output_gap": gap(output, expected)}
        for part, mine, true in zip("qkv", rounded, exact, strict=True):
            gaps[f"gradient_{part}_gap"] = gap(mine.grad, true.grad)
        yield way.name, {**gaps, "is_close": max(gaps.values()) < LARGEST_GAP}


def head(setting: Setting) -> Cases:
    """Log-probs of the head: in chunks as at once, and how far bfloat16 is from float32."""
    shape, rows = setting.shape, setting.size(8192, 256)
    torch.manual_seed(0)
    hidden = torch.randn(rows, shape.hidden_size, device=setting.device)
    weights = 0.02 * torch.randn(shape.vocab_size, shape.hidden_size, device=setting.device)
    targets = torch.randint(shape.vocab_size, (rows,), device=setting.device)
    ones = torch.ones(rows, device=setting.device)

    def scored(dtype: torch.dtype, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = hidden.to(dtype).requires_grad_()
        logprobs, _ = token_logprobs(inputs, weights.to(dtype), targets, ones, chunk_tokens=chunk)
        (gradient,) = torch.autograd.grad(logprobs.sum(), (inputs,))
        return logprobs.detach(), gradient

    plainly = (hidden @ weights.T).log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    exact, exact_gradient = scored(torch.float32, rows // 8)
    largest = float((exact - plainly).abs().max())
    yield "float32_in_chunks", {"largest": largest, "is_close": largest < 1e-3}
    for name, chunk in (("chunks", rows // 8), ("at_once", rows)):
        rounded, gradient = scored(torch.bfloat16, chunk)
        gaps = (rounded - exact).abs()
        yield (
            f"bfloat16_{name}",
            {
                "mean": float(gaps.mean()),
                "p99": float(gaps.quantile(0.99)),
                "largest": float(gaps.max()),
                "gradient_gap": gap(gradient, exact_gradient),
                "is_close": float(gaps.mean()) < 0.02,
            },
        )
    yield "float32_scores", _scores_in_float32(setting, hidden, weights, targets, exact)


def _scores_in_float32(
    setting: Setting,
    hidden: torch.Tensor,
    weights: torch.Tensor,
    targets: torch.Tensor,
    exact: torch.Tensor,
) -> Figures:
    """Products in bfloat16 that are not rounded to it: what a float32 head would give."""
    if setting.device == "cpu":
        return {"skipped": "a CPU has no product of bfloat16 with a result in float32"}
    scores = torch.mm(hidden.bfloat16(), weights.bfloat16().T, out_dtype=torch.float32)
    gaps = (scores.log_softmax(-1).gather(1, targets[:, None]).squeeze(1) - exact).abs()
    return {"mean": float(gaps.mean()), "p99": float(gaps.quantile(0.99))}


def learner(setting: Setting) -> Cases:
    """A rank on the device: it saves and resumes bit for bit, in every mode, and refuses a NaN."""
    kl = AlgorithmSpec(use_kl_loss=True, kl_loss_coef=0.1)
    plain, by_default = setting.learner(), AlgorithmSpec()
    modes = {
        "all_weights": (plain, by_default),
        "adapters": (setting.learner(adapters=True), by_default),
        "offloaded": (setting.learner(offload=True), by_default),
        "reference_policy": (plain, kl),
    }
    for setting_name, values in VARIANTS.items():
        for value in values:
            changed = plain.model_copy(update={setting_name: value})
            modes[f"{setting_name}_{value}"] = (changed, by_default)
    # Saving and comparing takes seconds for every gigabyte, and the kernels are those of 8B.
    setting = replace(setting, model_name="Qwen3-0.6B", vocab_size=setting.size(16_384, 512))
    batches = [setting.batch(setting.size(4096, 64), seed=seed) for seed in range(2)]
    for name, (spec, algorithm) in modes.items():
        rank = setting.rank(1, spec, algorithm=algorithm)
        with tempfile.TemporaryDirectory() as folder:
            yield name, resumes(rank, batches, Path(folder))
    yield "not_a_number", {"is_refused": _refuses_nan(setting.rank(1), batches[0])}


def _refuses_nan(rank: LearnerRank, batch: Batch) -> bool:
    (sequences,) = batch.mini_batches
    poisoned = tuple(replace(each, advantage=math.nan) for each in sequences)
    before = state_of(rank)
    try:
        rank.step(Batch(mini_batches=(poisoned,)))
    except NonFiniteUpdate:
        return is_same(before, state_of(rank))
    return False


def gradients(setting: Setting) -> Cases:
    """The gradient of a family of four branches in bfloat16 points where float32's does."""
    setting = replace(setting, vocab_size=setting.size(16_384, 512))
    batch = setting.batch(setting.size(2048, 64))
    exact, rounded = (
        _gradient(setting.rank(2, setting.learner(dtype=dtype)), batch)
        for dtype in ("float32", "bfloat16")
    )
    # In float32 the sums over so many numbers would be off by a tenth.
    norms = [math.sqrt(_product(each, each)) for each in (exact, rounded)]
    cosine = _product(exact, rounded) / (norms[0] * norms[1])
    ratio = norms[1] / norms[0]
    yield (
        "family",
        {
            "cosine": cosine,
            "norm_ratio": ratio,
            "is_close": cosine > 0.99 and 0.95 < ratio < 1.05,
        },
    )


def _gradient(rank: LearnerRank, batch: Batch) -> dict[str, torch.Tensor]:
    (sequences,) = batch.mini_batches
    for micro in rank._pack(sequences):  # noqa: SLF001 - the passes of a step, without its update
        rank._backward(micro)  # noqa: SLF001
    trained = rank._models.trained  # noqa: SLF001
    parts = {
        n: torch.nn.Parameter(each.grad) for n, each in trained.items() if each.grad is not None
    }
    return gathered(parts, rank._ranks)  # noqa: SLF001


def _product(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return sum(float(one[name].double().flatten() @ other[name].double().flatten()) for name in one)


CHECKS: dict[str, Check] = {
    "image": image,
    "attention": attention,
    "gradients": gradients,
    "head": head,
    "digests": digests,
    "learner": learner,
    "broadcast": broadcast,
    "chunks": chunks,
    "ipc": ipc,
    "positions": far_positions,
    "delta_kernels": delta_kernels,
    "families": families,
}
