"""What the learner does on one NVIDIA GPU: speed, memory, and whether its numbers hold.

    python benchmarks/gpu/learner.py [--out results.json] [--only NAME ...]
    python benchmarks/gpu/learner.py --device cpu --tiny     # a rehearsal without a GPU

The policy is a random model of Qwen3-8B's shape, built in place. A check that runs out of memory
says so and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.algo.sequences import Batch, TrainingSequence
from trainer.contract.sections import LearnerSpec, LoraSpec, ModelSpec, OptimizerSpec
from trainer.learners.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.learners.scoring import token_logprobs
from trainer.learners.sharding import World
from trainer.rope import apply_rope

GIB = 1024**3
Figures = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The device, and how large everything is."""

    device: str
    tiny: bool

    @property
    def lengths(self) -> tuple[int, ...]:
        """Packed tokens of one micro-batch."""
        return (128, 256) if self.tiny else (8192, 16_384, 32_768, 65_536)

    def config(self, *, layers: int | None = None) -> Qwen3Config:
        """Qwen3-8B's shape, or a toy of it."""
        wide = {"hidden_size": 4096, "intermediate_size": 12_288, "num_attention_heads": 32}
        toy = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
        return Qwen3Config(
            **(toy if self.tiny else wide),
            vocab_size=512 if self.tiny else 151_936,
            num_hidden_layers=layers or (2 if self.tiny else 36),
            num_key_value_heads=2 if self.tiny else 8,
            head_dim=16 if self.tiny else 128,
            max_position_embeddings=64 if self.tiny else 40_960,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            tie_word_embeddings=False,
        )

    def rank(
        self,
        *,
        lora: bool = False,
        dtype: str = "bfloat16",
        layers: int | None = None,
        rope: ModelSpec | None = None,
    ) -> LearnerRank:
        """A learner on a random policy; activations are computed again."""
        torch.manual_seed(0)
        config = apply_rope(self.config(layers=layers), rope or ModelSpec())
        # Weights of record are float32 unless they are frozen, which then need not be made so.
        with torch.device(self.device):
            kind = torch.bfloat16 if lora and dtype == "bfloat16" else torch.float32
            torch.set_default_dtype(kind)
            try:
                model = Qwen3ForCausalLM(config)
            finally:
                torch.set_default_dtype(torch.float32)
        spec = LearnerSpec(
            policy_dtype=dtype,  # type: ignore[arg-type]
            activation_checkpointing=True,
            max_micro_tokens=4_000_000,
            lora=LoraSpec(rank=32, alpha=64) if lora else None,
        )
        options = LearnerOptions(learner=spec, optimizer=OptimizerSpec(lr=1e-5))
        return LearnerRank(model, options, World(device=self.device))

    def batch(self, tokens: int, *, seed: int = 0, count: int = 2) -> Batch:
        """`count` rollouts of as many prompts, `tokens` packed tokens together."""
        rng, prompt = random.Random(seed), 32
        length = tokens // count - prompt + 1
        vocabulary = self.config().vocab_size
        sequences = []
        for advantage in (-1.0, 1.0)[:count]:
            ids = tuple(rng.randrange(vocabulary) for _ in range(prompt + length))
            mask = (False,) * prompt + (True,) * length
            logprobs = (0.0,) * prompt + (-12.0,) * length
            sequences.append(
                TrainingSequence(
                    token_ids=ids,
                    action_mask=mask,
                    logprobs=logprobs,
                    prompt_length=prompt,
                    advantage=advantage,
                    temperature=1.0,
                )
            )
        return Batch(mini_batches=(tuple(sequences),))

    def measured(self, rank: LearnerRank, tokens: int, *, count: int = 2) -> Figures:
        """Figures of the second of two steps."""
        rank.step(self.batch(tokens, count=count))
        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        metrics = rank.step(self.batch(tokens, seed=1, count=count))
        names = ("tokens_per_second", "mfu", "peak_memory_gib", "grad_norm")
        return {name: metrics.get(f"policy/{name}") for name in names}

    def by_length(self, rank: LearnerRank) -> Figures:
        """Figures for each number of packed tokens, until one is too many for the memory."""
        figures: Figures = {}
        for tokens in self.lengths:
            figures[str(tokens)] = attempt(lambda tokens=tokens: self.measured(rank, tokens))
            if "out_of_memory" in figures[str(tokens)]:
                break
        return figures


def lora_lengths(bench: Bench) -> Figures:
    """Adapters on the whole model, by packed tokens."""
    rank = bench.rank(lora=True)
    return bench.by_length(rank)


def full_lengths(bench: Bench) -> Figures:
    """Every weight of the whole model, by packed tokens: 16 bytes each before activations."""
    rank = bench.rank()
    return bench.by_length(rank)


def quarter_lengths(bench: Bench) -> Figures:
    """Every weight of a quarter of the layers: the speed of full training where memory suffices."""
    rank = bench.rank(layers=1 if bench.tiny else 9)
    return bench.by_length(rank)


def chunked_logprobs(bench: Bench) -> Figures:
    """Forward and backward of the head over 8192 tokens, in chunks and plainly."""
    config, rows = bench.config(), 256 if bench.tiny else 8192
    dtype = torch.float32 if bench.device == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    hidden = torch.randn(rows, config.hidden_size, device=bench.device, dtype=dtype)
    head = 0.02 * torch.randn(config.vocab_size, config.hidden_size, device=bench.device).to(dtype)
    hidden.requires_grad_()
    head.requires_grad_()
    targets = torch.randint(config.vocab_size, (rows,), device=bench.device)
    ones = torch.ones(rows, device=bench.device)

    def plain() -> torch.Tensor:
        return (hidden @ head.T).float().log_softmax(-1).gather(1, targets[:, None]).squeeze(1)

    def chunked() -> torch.Tensor:
        return token_logprobs(hidden, head, targets, ones, chunk_tokens=rows // 8)[0]

    figures: Figures = {}
    found = {}
    for name, score in (("plain", plain), ("chunked", chunked)):
        hidden.grad = head.grad = None
        score().sum().backward()
        hidden.grad = head.grad = None
        clear(bench.device)
        started = time.perf_counter()
        scored = score()
        scored.sum().backward()
        synchronize(bench.device)
        figures[name] = {
            "seconds": time.perf_counter() - started,
            "peak_memory_gib": peak(bench.device),
        }
        found[name] = (scored.detach(), hidden.grad.clone())
    figures["max_logprob_difference"] = float((found["plain"][0] - found["chunked"][0]).abs().max())
    figures["max_gradient_difference"] = float(
        (found["plain"][1] - found["chunked"][1]).abs().max()
    )
    return figures


def yarn(bench: Bench) -> Figures:
    """One sequence far beyond the trained positions, stretched and not."""
    original = 32 if bench.tiny else 32_768
    spec = {"factor": 4.0, "original_max_position_embeddings": original}
    rank = bench.rank(lora=True, rope=ModelSpec.model_validate({"rope": spec}))
    return bench.measured(rank, bench.lengths[-1], count=1)


def bfloat16_gap(bench: Bench) -> Figures:
    """Log-probs of the same weights in float32 and bfloat16."""
    ids = [(7 + 7919 * index) % bench.config().vocab_size for index in range(512)]
    layers = None if bench.tiny else 9
    exact = bench.rank(dtype="float32", layers=layers).logprobs(ids)
    gc.collect()
    gap = (bench.rank(layers=layers).logprobs(ids) - exact).abs()
    return {"mean": float(gap.mean()), "max": float(gap.max())}


def resume(bench: Bench) -> Figures:
    """Save, go on, load, go on again: the same bits?"""
    layers = 1 if bench.tiny else 2
    rank, tokens = bench.rank(layers=layers), bench.lengths[0]
    with tempfile.TemporaryDirectory() as directory:
        rank.step(bench.batch(tokens))
        started = time.perf_counter()
        finish = rank.begin_save(Path(directory))
        copied = time.perf_counter() - started
        finish()
        saved = time.perf_counter() - started
        rank.step(bench.batch(tokens, seed=1))
        expected = rank.weights()
        rank.load(Path(directory))
        rank.step(bench.batch(tokens, seed=1))
        found = rank.weights()
    same = all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    return {"bit_equal": same, "copy_seconds": copied, "save_seconds": saved}


def cuda_ipc(bench: Bench) -> Figures:
    """A tensor of 1 GiB read by another process where it lies."""
    if bench.device == "cpu":
        return {"skipped": "CUDA IPC needs a GPU"}
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    tensor = torch.randn(GIB // 4, device=bench.device)
    process = context.Process(target=_sum_of, args=(there, back))
    process.start()
    back.get(timeout=120)
    started = time.perf_counter()
    there.put(tensor)
    total = back.get(timeout=120)
    seconds = time.perf_counter() - started
    there.put(None)
    process.join(timeout=60)
    return {"seconds": seconds, "equal": total == float(tensor.double().sum())}


def _sum_of(there: Queue[Any], back: Queue[Any]) -> None:
    torch.zeros(1, device="cuda")
    back.put("ready")
    tensor = there.get()
    back.put(float(tensor.double().sum()))
    del tensor
    there.get()


CHECKS: dict[str, Callable[[Bench], Figures]] = {
    "lora_by_packed_tokens": lora_lengths,
    "quarter_by_packed_tokens": quarter_lengths,
    "full_by_packed_tokens": full_lengths,
    "chunked_logprobs": chunked_logprobs,
    "yarn": yarn,
    "bfloat16_gap": bfloat16_gap,
    "resume": resume,
    "cuda_ipc": cuda_ipc,
}


def attempt(check: Callable[[], Figures]) -> Figures:
    """The check's figures, or that the memory did not suffice."""
    try:
        return check()
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}


def clear(device: str) -> None:
    """Forget what earlier checks held."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def peak(device: str) -> float | None:
    """GiB of tensors at most since `clear`; not known on a CPU."""
    return None if device == "cpu" else torch.cuda.max_memory_allocated() / GIB


def main() -> None:
    """Run the checks and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", nargs="+", choices=sorted(CHECKS), default=list(CHECKS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    bench = Bench(device=given.device, tiny=given.tiny)
    name = platform.processor() or platform.machine()
    if given.device != "cpu":
        name = torch.cuda.get_device_name(given.device)
    results: Figures = {"device": name, "torch": torch.__version__, "tiny": given.tiny}
    for check in given.only:
        clear(given.device)
        results[check] = attempt(lambda check=check: CHECKS[check](bench))
        print(check, json.dumps(results[check]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
